package semel;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Clients with the settings that come in on standard input, one client a line: the role, then the properties with
 * semicolons between them. Of each it tells whether it was made, and a producer and the consumer behind it hand records
 * over.
 */
public final class Bundles {
    private static final int RECORDS = 5;

    private Bundles() {}

    /** Its arguments: bootstrap and topic. */
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int number = 0;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", 2);
            Properties properties = new Properties();
            properties.load(new StringReader(words.length > 1 ? words[1].replace(";", "\n") : ""));
            Map<String, Object> settings = new HashMap<>();
            properties.forEach((name, value) -> settings.put((String) name, value));
            Setup.tell(String.valueOf(number++), outcome(arguments[0], arguments[1], words[0], settings));
        }
    }

    private static String outcome(String bootstrap, String topic, String role, Map<String, Object> settings) {
        try {
            return role.equals("producer") ? write(bootstrap, topic, settings) : read(bootstrap, topic, settings);
        } catch (Exception refused) {
            return "refused";
        }
    }

    private static String write(String bootstrap, String topic, Map<String, Object> settings) throws Exception {
        boolean inTransaction = settings.containsKey("transactional.id");
        try (KafkaProducer<String, String> producer = Setup.producer(bootstrap, settings)) {
            if (inTransaction) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "payment " + number)).get();
            }
            if (inTransaction) {
                producer.commitTransaction();
            }
        }
        return "written";
    }

    private static String read(String bootstrap, String topic, Map<String, Object> settings) throws Exception {
        settings.put("group.id", topic);
        try (KafkaConsumer<String, String> consumer = Setup.consumer(bootstrap, settings)) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            int[] read = {0};
            Setup.eventually(() -> (read[0] += consumer.poll(Duration.ofMillis(200)).count()) >= RECORDS);
            return read[0] >= RECORDS ? "read" : "missed";
        }
    }
}

package semel;

import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer, a consumer and an admin client with each file of properties. Of each it tells what it came to: "in", or
 * the name of the client's own error.
 */
public final class Logins {
    private Logins() {}

    /** Its arguments: a topic that exists, and the files. */
    public static void main(String[] arguments) throws Exception {
        for (String file : List.of(arguments).subList(1, arguments.length)) {
            Properties settings = new Properties();
            try (FileInputStream stream = new FileInputStream(file)) {
                settings.load(stream);
            }
            tell(file, "producer", () -> produce(settings, arguments[0]));
            tell(file, "consumer", () -> consume(settings, arguments[0]));
            tell(file, "admin", () -> describe(settings));
        }
    }

    private static void tell(String file, String client, Callable<String> use) {
        String outcome;
        try {
            outcome = use.call();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            outcome = cause.getClass().getSimpleName();
        }
        String name = file.substring(file.lastIndexOf('/') + 1, file.lastIndexOf('.'));
        Setup.tell(name + " " + client, outcome);
    }

    private static Properties with(Properties settings, Map<String, ?> more) {
        Properties all = new Properties();
        all.putAll(settings);
        all.putAll(more);
        return all;
    }

    private static String produce(Properties settings, String topic) throws Exception {
        Properties all = with(settings, Map.of("max.block.ms", Setup.PATIENCE_MS));
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
        try {
            producer.send(new ProducerRecord<>(topic, "value")).get();
        } finally {
            producer.close(Duration.ZERO);
        }
        return "in";
    }

    private static String consume(Properties settings, String topic) throws Exception {
        Properties all = with(settings, Map.of("group.id", topic, "auto.offset.reset", "earliest"));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            return Setup.eventually(() -> !consumer.poll(Duration.ofMillis(100)).isEmpty()) ? "in" : "nothing read";
        }
    }

    private static String describe(Properties settings) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            admin.describeCluster().nodes().get();
        }
        return "in";
    }
}

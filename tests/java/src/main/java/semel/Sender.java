package semel;

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sends numbers one after the other until its standard input ends, and prints each when it is acknowledged. Arguments:
 * the addresses of the brokers, a topic, and a transactional id if each number is to have a transaction.
 */
public final class Sender {
    private Sender() {}

    public static void main(String[] arguments) throws Exception {
        boolean isTransactional = arguments.length > 2;
        Map<String, ?> settings = isTransactional ? Map.of("transactional.id", arguments[2]) : Map.of();
        Thread ending = new Thread(Sender::endWithInput);
        ending.setDaemon(true);
        ending.start();
        KafkaProducer<String, String> producer = Setup.producer(arguments[0], settings);
        if (isTransactional) {
            producer.initTransactions();
        }
        for (int number = 0;; ) {
            ProducerRecord<String, String> record = new ProducerRecord<>(arguments[1], 0, null, String.valueOf(number));
            if (!isTransactional) {
                producer.send(record).get();
            } else if (!Setup.commit(producer, () -> producer.send(record))) {
                continue;
            }
            System.out.println(number++);
        }
    }

    private static void endWithInput() {
        try {
            System.in.transferTo(java.io.OutputStream.nullOutputStream());
        } catch (java.io.IOException gone) {
            // Whoever started this program is gone.
        }
        Runtime.getRuntime().halt(0);
    }
}

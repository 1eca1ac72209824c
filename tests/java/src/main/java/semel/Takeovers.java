package semel;

import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sends numbers while one broker takes over from another: one by one with an idempotent producer, and each tenth also in
 * a transaction of three records. Arguments: the addresses of both brokers, a topic, how many.
 */
public final class Takeovers {
    private static final int PAUSE_MS = 2;

    private Takeovers() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        AtomicInteger errors = new AtomicInteger();
        int aborted = 0;
        try (KafkaProducer<String, String> single = Setup.producer(bootstrap, Map.of("linger.ms", 0));
                KafkaProducer<String, String> transactional =
                        Setup.producer(bootstrap, Map.of("transactional.id", topic, "linger.ms", 0))) {
            transactional.initTransactions();
            for (int number = 0; number < count; number++) {
                String value = String.valueOf(number);
                single.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                    if (error != null) {
                        errors.incrementAndGet();
                    }
                });
                while (number % 10 == 0 && !Setup.commit(transactional, () -> {
                    for (int part = 0; part < 3; part++) {
                        transactional.send(new ProducerRecord<>(topic + "-together", value + "." + part));
                    }
                })) {
                    aborted++;
                }
                Thread.sleep(PAUSE_MS);
            }
            single.flush();
        }
        Setup.tell("errors", errors.get());
        Setup.tell("aborted", aborted);
    }
}

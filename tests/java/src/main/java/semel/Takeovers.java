package semel;

import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

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
                single.send(new ProducerRecord<>(topic, String.valueOf(number)), (metadata, error) -> {
                    if (error != null) {
                        errors.incrementAndGet();
                    }
                });
                while (number % 10 == 0 && !commit(transactional, topic + "-together", number)) {
                    aborted++;
                }
                Thread.sleep(PAUSE_MS);
            }
            single.flush();
        }
        Setup.tell("errors", errors.get());
        Setup.tell("aborted", aborted);
    }

    /** Whether it was committed; if not, it was aborted as a whole. */
    private static boolean commit(KafkaProducer<String, String> producer, String topic, int number) {
        producer.beginTransaction();
        try {
            for (int part = 0; part < 3; part++) {
                producer.send(new ProducerRecord<>(topic, number + "." + part));
            }
            producer.commitTransaction();
            return true;
        } catch (ProducerFencedException | InvalidProducerEpochException | AuthorizationException fatal) {
            throw fatal;
        } catch (KafkaException aborting) {
            producer.abortTransaction();
            return false;
        }
    }
}

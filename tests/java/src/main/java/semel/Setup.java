package semel;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What all programs here share: clients with the settings of a user who sets few, and how a finding is told. */
final class Setup {
    static final long PATIENCE_MS = 30_000;

    private Setup() {}

    static void tell(String name, Object value) {
        System.out.println(name + ": " + value);
    }

    static Admin admin(String bootstrap) {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static void createTopic(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    static KafkaProducer<String, String> producer(String bootstrap, Map<String, ?> settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.putAll(settings);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, Map<String, ?> settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("enable.auto.commit", false);
        all.put("auto.offset.reset", "earliest");
        all.putAll(settings);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** Sends in a transaction: whether it was committed; if not, it was aborted as a whole. */
    static boolean commit(KafkaProducer<String, String> producer, Runnable sends) {
        producer.beginTransaction();
        try {
            sends.run();
            producer.commitTransaction();
            return true;
        } catch (ProducerFencedException | InvalidProducerEpochException | AuthorizationException fatal) {
            throw fatal;
        } catch (KafkaException aborting) {
            producer.abortTransaction();
            return false;
        }
    }

    /** Asks until it holds; false once patience is up. */
    static boolean eventually(Callable<Boolean> holds) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!holds.call()) {
            if (System.currentTimeMillis() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }
}

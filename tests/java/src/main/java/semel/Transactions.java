package semel;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

/** A transactional producer of Java 4, which adds partitions implicitly and whose epoch rises with every end. */
public final class Transactions {
    private static final int PARTITIONS = 3;

    private final String bootstrap;
    private final String topic;
    private final Admin admin;

    private Transactions(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.admin = Setup.admin(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        Transactions run = new Transactions(arguments[0], arguments[1]);
        Setup.createTopic(run.bootstrap, run.topic, PARTITIONS);
        Setup.createTopic(run.bootstrap, run.topic + "-source", 1);
        try (run.admin) {
            run.endsAndEpochs();
            run.openTransaction();
            run.offsets();
            run.zombie();
            run.idempotent();
            Setup.tell("committed", run.read("read_committed", 11));
            Setup.tell("uncommitted", run.read("read_uncommitted", 15).size());
        }
    }

    private KafkaProducer<String, String> transactional() {
        KafkaProducer<String, String> producer =
                Setup.producer(bootstrap, Map.of("transactional.id", topic, "transaction.timeout.ms", 60_000));
        producer.initTransactions();
        return producer;
    }

    private void send(KafkaProducer<String, String> producer, String value, int partitions) {
        for (int partition = 0; partition < partitions; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, value + " " + partition));
        }
        producer.flush();
    }

    private TransactionDescription description() throws Exception {
        return admin.describeTransactions(List.of(topic)).description(topic).get();
    }

    private void endsAndEpochs() throws Exception {
        try (KafkaProducer<String, String> producer = transactional()) {
            int first = description().producerEpoch();
            producer.beginTransaction();
            send(producer, "committed", PARTITIONS);
            producer.commitTransaction();
            Setup.tell("ended", Setup.eventually(() -> description().state().toString().equals("CompleteCommit")));
            Setup.tell("epochs after a commit", description().producerEpoch() - first);
            producer.beginTransaction();
            send(producer, "aborted", PARTITIONS);
            producer.abortTransaction();
            Setup.tell("aborted", Setup.eventually(() -> description().state().toString().equals("CompleteAbort")));
            Setup.tell("epochs after an abort", description().producerEpoch() - first);
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, "again", PARTITIONS);
            producer.commitTransaction();
        }
    }

    private void openTransaction() throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = transactional()) {
            producer.beginTransaction();
            send(producer, "open", 1);
            Setup.tell("state", description().state());
            Setup.tell("partitions", description().topicPartitions());
            Setup.tell("listed", admin.listTransactions().all().get().stream()
                    .anyMatch(each -> each.transactionalId().equals(topic)));
            Setup.tell("producers with an open transaction", admin.describeProducers(List.of(place)).partitionResult(place)
                    .get().activeProducers().stream()
                    .filter(each -> each.currentTransactionStartOffset().isPresent()).count());
            Setup.tell("held back", latest(place, IsolationLevel.READ_UNCOMMITTED)
                    - latest(place, IsolationLevel.READ_COMMITTED));
            producer.commitTransaction();
            Setup.tell("held back after the end", Setup.eventually(() -> latest(place, IsolationLevel.READ_UNCOMMITTED)
                    == latest(place, IsolationLevel.READ_COMMITTED)));
        }
    }

    private long latest(TopicPartition place, IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(place, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
                .partitionResult(place).get().offset();
    }

    private void offsets() throws Exception {
        TopicPartition source = new TopicPartition(topic + "-source", 0);
        try (KafkaProducer<String, String> plain = Setup.producer(bootstrap, Map.of())) {
            plain.send(new ProducerRecord<>(source.topic(), 0, null, "input")).get();
        }
        try (KafkaProducer<String, String> producer = transactional();
                KafkaConsumer<String, String> consumer = Setup.consumer(bootstrap, Map.of("group.id", topic))) {
            consumer.subscribe(List.of(source.topic()));
            Setup.tell("input", Setup.eventually(() -> !consumer.poll(Duration.ofMillis(100)).isEmpty()));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(source, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.abortTransaction();
            Setup.tell("offset after an abort", consumer.committed(java.util.Set.of(source)).get(source));
            producer.beginTransaction();
            send(producer, "with offsets", 1);
            producer.sendOffsetsToTransaction(Map.of(source, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.commitTransaction();
            Setup.tell("offset after a commit", consumer.committed(java.util.Set.of(source)).get(source).offset());
        }
    }

    private void zombie() {
        KafkaProducer<String, String> zombie = transactional();
        zombie.beginTransaction();
        send(zombie, "of the zombie", 1);
        try (KafkaProducer<String, String> successor = transactional()) {
            successor.beginTransaction();
            send(successor, "of the successor", 1);
            try {
                zombie.commitTransaction();
                Setup.tell("zombie", "committed");
            } catch (org.apache.kafka.common.errors.ProducerFencedException
                    | org.apache.kafka.common.errors.InvalidProducerEpochException fenced) {
                Setup.tell("zombie", "fenced");
            }
            successor.commitTransaction();
        }
        zombie.close(Duration.ZERO);
    }

    private void idempotent() throws Exception {
        try (KafkaProducer<String, String> producer = Setup.producer(bootstrap, Map.of())) {
            producer.send(new ProducerRecord<>(topic, 0, null, "idempotent 0")).get();
            producer.send(new ProducerRecord<>(topic, 1, null, "idempotent 1")).get();
        }
    }

    private List<String> read(String isolation, int count) throws Exception {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                Setup.consumer(bootstrap, Map.of("isolation.level", isolation))) {
            consumer.assign(List.of(
                    new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2)));
            Setup.eventually(() -> {
                consumer.poll(Duration.ofMillis(100)).forEach(each -> values.add(each.value()));
                return values.size() >= count;
            });
            consumer.poll(Duration.ofMillis(200)).forEach(each -> values.add(each.value()));
        }
        values.sort(null);
        return values;
    }
}

package semel;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consumers of Java 4 in one group, of the protocol that is named, as they come and go. */
public final class Groups {
    private static final int PARTITIONS = 6;

    private final String bootstrap;
    private final String topic;
    private final String protocol;
    private final Set<String> read = Collections.synchronizedSet(new java.util.HashSet<>());

    private Groups(String bootstrap, String topic, String protocol) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.protocol = protocol;
    }

    public static void main(String[] arguments) throws Exception {
        new Groups(arguments[0], arguments[1], arguments[2]).run();
    }

    private void run() throws Exception {
        Setup.createTopic(bootstrap, topic, PARTITIONS);
        List<Member> members = new ArrayList<>(List.of(new Member(), new Member()));
        try (Admin admin = Setup.admin(bootstrap)) {
            Setup.tell("two members", Setup.eventually(() -> areEven(members)));
            Setup.tell("read by two", isRead("two"));
            members.add(new Member());
            Setup.tell("three members", Setup.eventually(() -> areEven(members)));
            Setup.tell("read by three", isRead("three"));
            ConsumerGroupDescription description =
                    admin.describeConsumerGroups(List.of(topic)).describedGroups().get(topic).get();
            Setup.tell("type", description.type());
            Setup.tell("state", description.groupState());
            Setup.tell("members", description.members().size());
            members.remove(0).close();
            members.remove(0).close();
            Setup.tell("one member", Setup.eventually(() -> areEven(members)));
            Setup.tell("read by one", isRead("one"));
            members.remove(0).close();
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            Setup.tell("offsets", offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
            admin.deleteConsumerGroups(List.of(topic)).all().get();
            Setup.tell("deleted", admin.listGroups().all().get().stream()
                    .noneMatch(each -> each.groupId().equals(topic)));
        }
    }

    private boolean isRead(String stage) throws Exception {
        try (KafkaProducer<String, String> producer = Setup.producer(bootstrap, Map.of())) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, stage + partition));
            }
        }
        return Setup.eventually(() -> read.stream().filter(each -> each.startsWith(stage)).count() == PARTITIONS);
    }

    private static boolean areEven(List<Member> members) {
        List<TopicPartition> all = members.stream().flatMap(each -> each.assignment.stream()).collect(Collectors.toList());
        boolean isEven = members.stream().allMatch(each -> each.assignment.size() == PARTITIONS / members.size());
        return isEven && Set.copyOf(all).size() == PARTITIONS;
    }

    /** A consumer that polls and commits in a thread of its own. */
    private final class Member {
        private final AtomicBoolean isStopping = new AtomicBoolean();
        private final Thread thread = new Thread(this::work);
        private volatile Set<TopicPartition> assignment = Set.of();

        Member() {
            thread.start();
        }

        void close() throws InterruptedException {
            isStopping.set(true);
            thread.join();
        }

        private void work() {
            Map<String, Object> settings = new HashMap<>(Map.of("group.id", topic, "group.protocol", protocol));
            if (protocol.equals("classic")) {
                settings.put("session.timeout.ms", 6_000);
                settings.put("heartbeat.interval.ms", 200);
            }
            try (KafkaConsumer<String, String> consumer = Setup.consumer(bootstrap, settings)) {
                consumer.subscribe(List.of(topic));
                while (!isStopping.get()) {
                    consumer.poll(Duration.ofMillis(50)).forEach(each -> read.add(each.value()));
                    assignment = Set.copyOf(consumer.assignment());
                    consumer.commitSync();
                }
            }
        }
    }
}

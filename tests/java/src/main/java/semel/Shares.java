package semel;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Two share consumers of Java 4 in one group: each record goes to one of them, and what is released comes again. */
public final class Shares {
    private static final int RECORDS = 200;
    private static final int EVERY = 10;

    private Shares() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        Setup.createTopic(bootstrap, topic, 2);
        try (Admin admin = Setup.admin(bootstrap)) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, topic);
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                    new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
            try (KafkaProducer<String, String> producer = Setup.producer(bootstrap, Map.of())) {
                for (int number = 0; number < RECORDS; number++) {
                    producer.send(new ProducerRecord<>(topic, number % 2, null, String.valueOf(number)));
                }
            }
            Map<String, Integer> accepted = new TreeMap<>();
            Set<String> released = new TreeSet<>();
            Set<Short> counts = new TreeSet<>();
            Set<String> rejected = new TreeSet<>();
            try (KafkaShareConsumer<String, String> one = consumer(bootstrap, topic);
                    KafkaShareConsumer<String, String> two = consumer(bootstrap, topic)) {
                List<KafkaShareConsumer<String, String>> both = List.of(one, two);
                boolean isDone = Setup.eventually(() -> {
                    for (KafkaShareConsumer<String, String> each : both) {
                        for (ConsumerRecord<String, String> record : each.poll(Duration.ofMillis(100))) {
                            counts.add(record.deliveryCount().orElseThrow());
                            if (Integer.parseInt(record.value()) % EVERY == 0 && released.add(record.value())) {
                                each.acknowledge(record, AcknowledgeType.RELEASE);
                            } else if (Integer.parseInt(record.value()) % EVERY == 1) {
                                rejected.add(record.value());
                                each.acknowledge(record, AcknowledgeType.REJECT);
                            } else {
                                accepted.merge(record.value(), 1, Integer::sum);
                                each.acknowledge(record, AcknowledgeType.ACCEPT);
                            }
                        }
                        each.commitSync();
                    }
                    return accepted.size() + rejected.size() == RECORDS;
                });
                Setup.tell("all", isDone);
                ShareGroupDescription description =
                        admin.describeShareGroups(List.of(topic)).describedGroups().get(topic).get();
                Setup.tell("state", description.groupState());
                Setup.tell("members", description.members().size());
            }
            Setup.tell("each once", accepted.values().stream().allMatch(each -> each == 1));
            Setup.tell("rejected", rejected.size());
            Setup.tell("deliveries", counts);
            Map<TopicPartition, SharePartitionOffsetInfo> offsets = admin.listShareGroupOffsets(
                    Map.of(topic, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(topic).get();
            Setup.tell("offsets", offsets.values().stream().mapToLong(SharePartitionOffsetInfo::startOffset).sum());
            Setup.tell("lag", offsets.values().stream().mapToLong(each -> each.lag().orElse(-1L)).sum());
            admin.deleteShareGroups(List.of(topic)).all().get();
            Setup.tell("deleted", admin.listGroups().all().get().stream()
                    .noneMatch(each -> each.groupId().equals(topic)));
        }
    }

    private static KafkaShareConsumer<String, String> consumer(String bootstrap, String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings);
        consumer.subscribe(new ArrayList<>(List.of(group)));
        return consumer;
    }
}

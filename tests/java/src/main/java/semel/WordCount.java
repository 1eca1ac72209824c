package semel;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams counts words exactly once: lines, a repartition topic, a store with its changelog, and an output. A run
 * that is told to halt does so in the midst of a transaction, as if it were killed; the next takes the work up.
 */
public final class WordCount {
    private static final int PARTITIONS = 3;
    private static final int LINES = 600;

    private final String bootstrap;
    private final String topic;
    private final Map<String, Integer> expected = new HashMap<>();

    private WordCount(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        for (int line = 0; line < LINES; line++) {
            for (String word : words(line)) {
                expected.merge(word, 1, Integer::sum);
            }
        }
    }

    /** Its arguments: bootstrap, topic, the directory of the state, and after how many words to halt (0: never). */
    public static void main(String[] arguments) throws Exception {
        WordCount run = new WordCount(arguments[0], arguments[1]);
        run.feed();
        try (KafkaStreams streams = run.streams(arguments[2], Integer.parseInt(arguments[3]))) {
            streams.start();
            Setup.tell("counted", run.counted());
        }
        run.internalTopics();
    }

    private static String[] words(int line) {
        return new String[] {"seven" + line % 7, "eleven" + line % 11, "thirteen" + line % 13};
    }

    private void feed() throws Exception {
        try (Admin admin = Setup.admin(bootstrap)) {
            if (admin.listTopics().names().get().contains(topic)) {
                return;
            }
        }
        Setup.createTopic(bootstrap, topic, PARTITIONS);
        Setup.createTopic(bootstrap, output(), PARTITIONS);
        try (KafkaProducer<String, String> producer = Setup.producer(bootstrap, Map.of())) {
            for (int line = 0; line < LINES; line++) {
                producer.send(new ProducerRecord<>(topic, line % PARTITIONS, null, String.join(" ", words(line))));
            }
        }
    }

    private KafkaStreams streams(String stateDirectory, int wordsUntilHalt) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("application.id", topic);
        settings.put("state.dir", stateDirectory);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("commit.interval.ms", 10);
        settings.put("max.poll.records", 20);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 6_000);
        settings.put("heartbeat.interval.ms", 1_000);
        AtomicInteger words = new AtomicInteger();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("word", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("count"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues(String::valueOf)
                .peek((word, count) -> {
                    if (words.incrementAndGet() == wordsUntilHalt) {
                        Setup.tell("halted", wordsUntilHalt);
                        System.out.flush();
                        Runtime.getRuntime().halt(0);
                    }
                })
                .to(output(), Produced.with(Serdes.String(), Serdes.String()));
        return new KafkaStreams(builder.build(), settings);
    }

    private String output() {
        return topic + "-counts";
    }

    /** Whether the committed output says of every word 1, 2, 3 and so on, each number once and in this order. */
    private boolean counted() throws Exception {
        List<TopicPartition> partitions = List.of(
                new TopicPartition(output(), 0), new TopicPartition(output(), 1), new TopicPartition(output(), 2));
        Map<String, Integer> counts = new HashMap<>();
        try (KafkaConsumer<String, String> consumer =
                Setup.consumer(bootstrap, Map.of("isolation.level", "read_committed"))) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.currentTimeMillis() + 2 * Setup.PATIENCE_MS;
            while (!counts.equals(expected) && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (counts.merge(record.key(), 1, Integer::sum) != Integer.parseInt(record.value())) {
                        return false;
                    }
                }
            }
            return counts.equals(expected);
        }
    }

    private void internalTopics() throws Exception {
        try (Admin admin = Setup.admin(bootstrap)) {
            for (String internal : List.of("-word-repartition", "-count-changelog")) {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic + internal);
                Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
                Setup.tell(internal.substring(1), config.get("cleanup.policy").value());
            }
        }
    }
}

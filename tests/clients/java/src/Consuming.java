import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageListener;
import org.apache.pulsar.client.api.Messages;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.ConsumerAssignException;
import org.apache.pulsar.client.api.PulsarClientException.ConsumerBusyException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Scenarios of subscriptions: what their consumers get. */
final class Consuming {
    private static final int SLOTS = 65_536;
    private static final int KEYS = 20;
    private static final int WATCHED_LENGTH_MAX = 50; // subscriptionPatternMaxLength

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("initial-position", Consuming::initialPosition);
        SCENARIOS.put("exclusive", Consuming::exclusive);
        SCENARIOS.put("failover", Consuming::failover);
        SCENARIOS.put("shared", Consuming::shared);
        SCENARIOS.put("shared-turns", Consuming::turns);
        SCENARIOS.put("key-shared", Consuming::keyShared);
        SCENARIOS.put("sticky-ranges", Consuming::stickyRanges);
        SCENARIOS.put("unsubscribe", Consuming::unsubscribe);
        SCENARIOS.put("multi-topics", Consuming::multiTopics);
        SCENARIOS.put("pattern", Consuming::pattern);
        SCENARIOS.put("queue-size-zero", Consuming::queueSizeZero);
        SCENARIOS.put("batch-receive", Consuming::batchReceive);
    }

    private Consuming() {}

    private static void initialPosition(Context context) throws Exception {
        Producer<byte[]> producer = context.producer().create();
        Context.sendNumbered(producer, "m", 0, 5);
        Consumer<byte[]> earliest = context.consumer("earliest").subscribe();
        Consumer<byte[]> latest =
                context.consumer("latest").subscriptionInitialPosition(SubscriptionInitialPosition.Latest).subscribe();
        Context.sendNumbered(producer, "m", 5, 10);
        Check.equal(Context.texts(Context.take(earliest, 10)), Context.numbered("m", 0, 10), "messages from Earliest");
        Check.equal(Context.texts(Context.take(latest, 5)), Context.numbered("m", 5, 10), "messages from Latest");
        Context.expectNothing(latest);
    }

    private static void exclusive(Context context) throws Exception {
        Consumer<byte[]> first = context.consumer("sub").subscribe();
        ConsumerBuilder<byte[]> second = context.otherClient().newConsumer().topic(context.topic).subscriptionName("sub");
        Check.refused(ConsumerBusyException.class, second::subscribe, "a second exclusive consumer");
        first.close();
        Consumer<byte[]> next = second.subscribe();
        context.producer().create().send(Context.bytes("m0"));
        Check.equal(Context.texts(Context.take(next, 1)), List.of("m0"), "messages");
    }

    /** What has come at each consumer when all have come; nothing is acknowledged. */
    private static List<List<Message<byte[]>>> gather(List<Consumer<byte[]>> consumers, int count) throws Exception {
        List<List<Message<byte[]>>> gathered = new ArrayList<>();
        consumers.forEach(consumer -> gathered.add(new ArrayList<>()));
        Check.soon(
                () -> {
                    for (int index = 0; index < consumers.size(); index++) {
                        Message<byte[]> message;
                        while ((message = consumers.get(index).receive(1, TimeUnit.MILLISECONDS)) != null) {
                            gathered.get(index).add(message);
                        }
                    }
                    return gathered.stream().mapToInt(List::size).sum() >= count;
                },
                "not all of " + count + " messages came to " + consumers.size() + " consumers");
        Check.equal(gathered.stream().mapToInt(List::size).sum(), count, "messages");
        return gathered;
    }

    private static void failover(Context context) throws Exception {
        ConsumerBuilder<byte[]> builder = context.consumer("sub").subscriptionType(SubscriptionType.Failover);
        List<Consumer<byte[]>> consumers =
                List.of(builder.clone().consumerName("a").subscribe(), builder.clone().consumerName("b").subscribe());
        Producer<byte[]> producer = context.producer().create();
        for (int number = 0; number < 20; number++) {
            producer.send(Context.bytes("m" + number));
        }
        List<List<Message<byte[]>>> gathered = gather(consumers, 20);
        int active = gathered.get(0).isEmpty() ? 1 : 0;
        Check.equal(Context.texts(gathered.get(active)), Context.numbered("m", 0, 20), "messages of the active consumer");
        for (Message<byte[]> message : gathered.get(active).subList(0, 10)) {
            consumers.get(active).acknowledge(message);
        }
        consumers.get(active).close();
        Context.sendNumbered(producer, "m", 20, 25);
        List<Message<byte[]>> others = Context.take(consumers.get(1 - active), 15);
        Check.equal(Context.texts(others), Context.numbered("m", 10, 25), "messages of the other consumer");
    }

    private static void shared(Context context) throws Exception {
        ConsumerBuilder<byte[]> builder =
                context.consumer("sub").subscriptionType(SubscriptionType.Shared).receiverQueueSize(10);
        List<Consumer<byte[]>> consumers = List.of(builder.clone().subscribe(), builder.clone().subscribe());
        Context.sendNumbered(context.unbatched().create(), "m", 0, 40);
        List<List<Message<byte[]>>> gathered = gather(consumers, 40);
        Set<String> distinct = new HashSet<>(Context.texts(gathered.get(0)));
        distinct.addAll(Context.texts(gathered.get(1)));
        Check.equal(distinct, Set.copyOf(Context.numbered("m", 0, 40)), "messages of both");
        List<Message<byte[]>> first = gathered.get(0);
        Check.that(first.size() >= 5 && gathered.get(1).size() >= 5, "one of them got fewer than 5: " + first.size() + " of 40");
        for (Message<byte[]> message : first.subList(0, first.size() - 5)) {
            consumers.get(0).acknowledge(message);
        }
        for (Message<byte[]> message : gathered.get(1)) {
            consumers.get(1).acknowledge(message);
        }
        consumers.get(0).close();
        Set<String> left = Set.copyOf(Context.texts(first.subList(first.size() - 5, first.size())));
        Check.equal(Set.copyOf(Context.texts(Context.take(consumers.get(1), 5))), left, "messages of the closed consumer");
        Context.expectNothing(consumers.get(1));
    }

    private static void turns(Context context) throws Exception {
        List<AtomicInteger> counts = List.of(new AtomicInteger(), new AtomicInteger());
        for (AtomicInteger count : counts) {
            MessageListener<byte[]> listener = (consumer, message) -> {
                count.incrementAndGet();
                consumer.acknowledgeAsync(message);
            };
            context.consumer("sub").subscriptionType(SubscriptionType.Shared).messageListener(listener).subscribe();
        }
        Producer<byte[]> producer = context.unbatched().create();
        for (int number = 0; number < 100; number++) {
            producer.sendAsync(Context.bytes("m" + number));
            Thread.sleep(5);
        }
        producer.flush();
        Check.soon(() -> counts.get(0).get() + counts.get(1).get() >= 100, "not all messages came: " + counts);
        Check.that(counts.get(0).get() >= 30 && counts.get(1).get() >= 30, "not in turns: " + counts);
    }

    private static void sendKeys(Producer<byte[]> producer, int start, int end) throws PulsarClientException {
        for (int number = start; number < end; number++) {
            producer.newMessage().key("k" + number % KEYS).value(Context.bytes("m" + number)).sendAsync();
        }
        producer.flush();
    }

    /** What `sendKeys` sends, by key. */
    private static Map<String, List<String>> ofKeys(int start, int end) {
        Map<String, List<String>> sent = new TreeMap<>();
        for (int number = start; number < end; number++) {
            sent.computeIfAbsent("k" + number % KEYS, key -> new ArrayList<>()).add("m" + number);
        }
        return sent;
    }

    private static Map<String, List<String>> byKey(List<Message<byte[]>> messages) {
        return messages.stream()
                .collect(Collectors.groupingBy(
                        Message::getKey, TreeMap::new, Collectors.mapping(Context::text, Collectors.toList())));
    }

    private static void keyShared(Context context) throws Exception {
        ConsumerBuilder<byte[]> builder = context.consumer("sub").subscriptionType(SubscriptionType.Key_Shared);
        List<Consumer<byte[]>> consumers = List.of(builder.clone().subscribe(), builder.clone().subscribe());
        Producer<byte[]> producer = context.unbatched().create();
        sendKeys(producer, 0, 100);
        List<List<Message<byte[]>>> gathered = gather(consumers, 100);
        Map<String, List<String>> together = new HashMap<>();
        for (int index = 0; index < 2; index++) {
            Map<String, List<String>> mine = byKey(gathered.get(index));
            Check.that(!mine.isEmpty(), "consumer " + index + " has no key");
            mine.forEach((key, texts) -> Check.that(together.put(key, texts) == null, key + " is with both consumers"));
            for (Message<byte[]> message : gathered.get(index)) {
                consumers.get(index).acknowledge(message);
            }
        }
        Check.equal(new TreeMap<>(together), ofKeys(0, 100), "messages of both, by key");
        consumers.get(0).close();
        sendKeys(producer, 100, 120);
        Check.equal(byKey(Context.take(consumers.get(1), 20)), ofKeys(100, 120), "messages of the one left, by key");
    }

    private static ConsumerBuilder<byte[]> sticky(Context context, int from, int to) throws Exception {
        return context.consumer("sub")
                .subscriptionType(SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(from, to)));
    }

    private static void stickyRanges(Context context) throws Exception {
        Consumer<byte[]> low = sticky(context, 0, SLOTS / 2 - 1).subscribe();
        Consumer<byte[]> high = sticky(context, SLOTS / 2, SLOTS - 1).subscribe();
        Check.refused(ConsumerAssignException.class, sticky(context, 0, 100)::subscribe, "a third consumer of slots in use");
        sendKeys(context.unbatched().create(), 0, 100);
        List<List<Message<byte[]>>> gathered = gather(List.of(low, high), 100);
        for (int index = 0; index < 2; index++) {
            Map<String, List<String>> expected = ofKeys(0, 100);
            boolean upper = index == 1;
            expected.keySet().removeIf(key -> slot(key) >= SLOTS / 2 != upper);
            Check.equal(byKey(gathered.get(index)), expected, "messages of the " + (upper ? "upper" : "lower") + " slots");
        }
    }

    /** By murmur3-32 with seed 0, written again here, so that Pulsar's own code does not check itself. */
    private static int slot(String key) {
        byte[] bytes = Context.bytes(key);
        ByteBuffer words = ByteBuffer.wrap(Arrays.copyOf(bytes, (bytes.length + 3) / 4 * 4)).order(ByteOrder.LITTLE_ENDIAN);
        int hash = 0;
        for (int start = 0; start < bytes.length; start += 4) {
            hash ^= Integer.rotateLeft(words.getInt() * 0xcc9e2d51, 15) * 0x1b873593;
            if (start + 4 <= bytes.length) {
                hash = Integer.rotateLeft(hash, 13) * 5 + 0xe6546b64;
            }
        }
        hash ^= bytes.length;
        hash = (hash ^ hash >>> 16) * 0x85ebca6b;
        hash = (hash ^ hash >>> 13) * 0xc2b2ae35;
        return (hash ^ hash >>> 16) & (SLOTS - 1);
    }

    private static void unsubscribe(Context context) throws Exception {
        ConsumerBuilder<byte[]> builder =
                context.consumer("sub").subscriptionInitialPosition(SubscriptionInitialPosition.Latest);
        Consumer<byte[]> consumer = builder.clone().subscribe();
        Producer<byte[]> producer = context.producer().create();
        Context.sendNumbered(producer, "m", 0, 5);
        Context.receive(consumer, 2);
        consumer.unsubscribe();
        Consumer<byte[]> again = builder.clone().subscribe();
        Context.sendNumbered(producer, "m", 5, 8);
        Check.equal(Context.texts(Context.take(again, 3)), Context.numbered("m", 5, 8), "messages");
    }

    private static void multiTopics(Context context) throws Exception {
        List<String> topics = Context.numbered(context.topic + "-", 0, 3);
        Consumer<byte[]> consumer = from(context).topics(topics).subscribe();
        for (String topic : topics) {
            Context.sendNumbered(context.client().newProducer().topic(topic).create(), topic + " ", 0, 10);
        }
        Map<String, List<String>> ofTopic = ofTopic(Context.take(consumer, 30));
        Check.equal(ofTopic.keySet(), Set.copyOf(topics), "topics");
        ofTopic.forEach((topic, texts) -> Check.equal(texts, Context.numbered(topic + " ", 0, 10), "messages of " + topic));
    }

    private static ConsumerBuilder<byte[]> from(Context context) throws PulsarClientException {
        return context.client()
                .newConsumer()
                .subscriptionName("sub")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    private static Map<String, List<String>> ofTopic(List<Message<byte[]>> messages) {
        return messages.stream()
                .collect(Collectors.groupingBy(
                        Message::getTopicName, Collectors.mapping(Context::text, Collectors.toList())));
    }

    /** The client's look at all topics, each minute, is too late here: the service tells of the third one. */
    private static void pattern(Context context) throws Exception {
        Context.sendNumbered(context.client().newProducer().topic(context.topic + "-0").create(), "0.", 0, 5);
        Context.sendNumbered(context.client().newProducer().topic(context.topic + "-1").create(), "1.", 0, 5);
        Context.sendNumbered(context.client().newProducer().topic(context.topic + "x").create(), "x.", 0, 5);
        String pattern = context.topic + "-.*";
        boolean watched = pattern.length() - "persistent://".length() <= WATCHED_LENGTH_MAX;
        Consumer<byte[]> consumer = from(context)
                .topicsPattern(Pattern.compile(pattern))
                .patternAutoDiscoveryPeriod(watched ? 60 : 1, TimeUnit.SECONDS)
                .subscribe();
        Check.equal(ofTopic(Context.take(consumer, 10)), expectedOf(context, 0, 1), "messages of two topics");
        Context.sendNumbered(context.client().newProducer().topic(context.topic + "-2").create(), "2.", 0, 5);
        Check.equal(ofTopic(Context.take(consumer, 5)), expectedOf(context, 2), "messages of the third topic");
        Context.expectNothing(consumer);
    }

    private static Map<String, List<String>> expectedOf(Context context, int... topics) {
        Map<String, List<String>> expected = new HashMap<>();
        for (int topic : topics) {
            expected.put(context.topic + "-" + topic, Context.numbered(topic + ".", 0, 5));
        }
        return expected;
    }

    private static void queueSizeZero(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").receiverQueueSize(0).subscribe();
        Producer<byte[]> producer = context.unbatched().create();
        for (int number = 0; number < 5; number++) {
            producer.send(Context.bytes("m" + number));
        }
        for (int number = 0; number < 5; number++) {
            Message<byte[]> message = consumer.receive(); // the client has no timeout with a queue of 0
            Check.equal(Context.text(message), "m" + number, "message " + number);
            consumer.acknowledge(message);
        }
        context.awaitBacklog("sub", 0);
    }

    private static void batchReceive(Context context) throws Exception {
        BatchReceivePolicy policy = BatchReceivePolicy.builder().maxNumMessages(10).timeout(1, TimeUnit.SECONDS).build();
        Consumer<byte[]> consumer = context.consumer("sub").batchReceivePolicy(policy).subscribe();
        Context.sendNumbered(context.unbatched().create(), "m", 0, 15);
        List<String> received = new ArrayList<>();
        for (int count : List.of(10, 5)) {
            Messages<byte[]> messages = consumer.batchReceive();
            Check.equal(messages.size(), count, "messages of one batch receive");
            messages.forEach(message -> received.add(Context.text(message)));
            consumer.acknowledge(messages);
        }
        Check.equal(received, Context.numbered("m", 0, 15), "messages");
    }
}

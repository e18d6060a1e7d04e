import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerInterceptor;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.ProducerBusyException;
import org.apache.pulsar.client.api.PulsarClientException.ProducerFencedException;
import org.apache.pulsar.client.api.interceptor.ProducerInterceptor;

/** Scenarios of names and access modes of producers, partitions and interceptors. */
final class Producers {
    private static final long SECOND_MS = 1_000;

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("producer-name", Producers::name);
        SCENARIOS.put("access-exclusive", Producers::exclusive);
        SCENARIOS.put("access-wait", Producers::waiting);
        SCENARIOS.put("access-fencing", Producers::fencing);
        SCENARIOS.put("partitioned", Producers::partitioned);
        SCENARIOS.put("partitions-grow", Producers::grow);
        SCENARIOS.put("interceptors", Producers::interceptors);
    }

    private Producers() {}

    private static void name(Context context) throws Exception {
        Producer<byte[]> first = context.producer().producerName("mine").create();
        ProducerBuilder<byte[]> second = context.otherClient().newProducer().topic(context.topic).producerName("mine");
        Check.refused(ProducerBusyException.class, second::create, "a second producer of that name");
        Check.refused(
                ProducerBusyException.class,
                () -> context.producer().producerName("mine").create(),
                "a second producer of that name on the same connection");
        first.send(Context.bytes("m0"));
        first.close();
        Producer<byte[]> taken = second.create();
        Check.equal(taken.getProducerName(), "mine", "name");
        taken.send(Context.bytes("m1"));
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Check.equal(Context.texts(Context.take(consumer, 2)), List.of("m0", "m1"), "messages");
    }

    private static ProducerBuilder<byte[]> other(Context context, ProducerAccessMode mode) throws Exception {
        return context.otherClient().newProducer().topic(context.topic).accessMode(mode);
    }

    private static void exclusive(Context context) throws Exception {
        Producer<byte[]> holder = context.producer().accessMode(ProducerAccessMode.Exclusive).create();
        ProducerBuilder<byte[]> second = other(context, ProducerAccessMode.Exclusive);
        Check.refused(ProducerFencedException.class, second::create, "a second exclusive producer");
        Check.refused(
                ProducerBusyException.class,
                other(context, ProducerAccessMode.Shared)::create,
                "a shared producer beside an exclusive one");
        holder.send(Context.bytes("m0"));
        holder.close();
        second.create().send(Context.bytes("m1"));
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Check.equal(Context.texts(Context.take(consumer, 2)), List.of("m0", "m1"), "messages");
    }

    private static void waiting(Context context) throws Exception {
        Producer<byte[]> holder = context.producer().accessMode(ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<byte[]>> second = other(context, ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(SECOND_MS / 2);
        Check.that(!second.isDone(), "a waiting producer was answered while the topic had a holder");
        holder.send(Context.bytes("m0"));
        holder.close();
        second.get(Context.ARRIVES_WITHIN_S, TimeUnit.SECONDS).send(Context.bytes("m1"));
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Check.equal(Context.texts(Context.take(consumer, 2)), List.of("m0", "m1"), "messages");
    }

    private static void fencing(Context context) throws Exception {
        Producer<byte[]> holder = context.producer().accessMode(ProducerAccessMode.Exclusive).create();
        holder.send(Context.bytes("m0"));
        Producer<byte[]> taker = other(context, ProducerAccessMode.ExclusiveWithFencing).create();
        Check.refused(PulsarClientException.class, () -> holder.send(Context.bytes("late")), "a send of the former holder");
        taker.send(Context.bytes("m1"));
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Check.equal(Context.texts(Context.take(consumer, 2)), List.of("m0", "m1"), "messages");
        Context.expectNothing(consumer);
    }

    private static void partitioned(Context context) throws Exception {
        context.ask("partition", context.topic, "3");
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> byKey = context.producer().create();
        for (int number = 0; number < 50; number++) {
            byKey.newMessage().key("k" + number % 10).value(Context.bytes("m" + number)).sendAsync();
        }
        byKey.flush();
        Map<String, List<Message<byte[]>>> ofKey =
                Context.take(consumer, 50).stream().collect(Collectors.groupingBy(Message::getKey));
        Check.equal(ofKey.size(), 10, "keys");
        ofKey.forEach((key, messages) -> {
            Check.equal(partitions(messages).size(), 1, "partitions of " + key);
            List<String> sent = Context.numbered("m", 0, 50).stream().filter(text -> text.endsWith(key.substring(1))).toList();
            Check.equal(Context.texts(messages), sent, "messages of " + key);
        });
        Producer<byte[]> inTurns = inTurns(context);
        Context.sendNumbered(inTurns, "turn", 0, 60);
        Check.equal(partitions(Context.take(consumer, 60)).size(), 3, "partitions of messages without key");
    }

    private static ProducerBuilder<byte[]> turning(Context context) throws Exception {
        return context.unbatched().messageRoutingMode(MessageRoutingMode.RoundRobinPartition);
    }

    private static Producer<byte[]> inTurns(Context context) throws Exception {
        return turning(context).create();
    }

    private static Set<String> partitions(List<Message<byte[]>> messages) {
        return messages.stream().map(Message::getTopicName).collect(Collectors.toCollection(TreeSet::new));
    }

    /** Beyond the catalogue: producers and consumers of before follow, because the client looks every second. */
    private static void grow(Context context) throws Exception {
        context.ask("partition", context.topic, "2");
        Consumer<byte[]> early = context.consumer("early").autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).subscribe();
        Producer<byte[]> former =
                turning(context).autoUpdatePartitions(true).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create();
        Context.sendNumbered(former, "two", 0, 20);
        Check.equal(partitions(Context.take(early, 20)).size(), 2, "partitions at first");
        context.ask("partition", context.topic, "4");
        Producer<byte[]> opened = inTurns(context);
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Context.sendNumbered(opened, "four", 0, 40);
        Check.equal(partitions(Context.take(consumer, 60)).size(), 4, "partitions of a consumer opened after");
        Check.equal(partitions(Context.take(early, 40)).size(), 4, "partitions of a consumer opened before");
        Check.soon(
                () -> {
                    Context.sendNumbered(former, "follows", 0, 4);
                    return partitions(Context.take(consumer, 4)).size() == 4;
                },
                "a producer opened before does not use all 4 partitions");
    }

    private static void interceptors(Context context) throws Exception {
        ProducerSpy producing = new ProducerSpy();
        ConsumerSpy consuming = new ConsumerSpy();
        Consumer<byte[]> consumer = context.consumer("sub").intercept(consuming).subscribe();
        Producer<byte[]> producer = context.producer().intercept(producing).create();
        Context.sendNumbered(producer, "m", 0, 5);
        List<Message<byte[]>> messages = Context.take(consumer, 5);
        Check.equal(producing.sent, 5, "messages that the producer's interceptor saw");
        Check.equal(Map.copyOf(producing.stored), ids(messages), "ids that the producer's interceptor saw");
        Check.equal(consuming.consumed, Context.numbered("m", 0, 5), "messages that the consumer's interceptor saw");
        Check.soon(() -> consuming.acknowledged.get() == 5, "the consumer's interceptor did not see 5 acknowledgements");
        context.awaitBacklog("sub", 0);
    }

    private static Map<String, String> ids(List<Message<byte[]>> messages) {
        return messages.stream().collect(Collectors.toMap(Context::text, message -> message.getMessageId().toString()));
    }

    private static final class ProducerSpy implements ProducerInterceptor {
        int sent;
        final Map<String, String> stored = new HashMap<>();

        @Override
        public boolean eligible(@SuppressWarnings("rawtypes") Message message) {
            return true;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Message beforeSend(Producer producer, Message message) {
            sent++;
            return message;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public synchronized void onSendAcknowledgement(Producer producer, Message message, MessageId id, Throwable failure) {
            stored.put(Context.text((Message<?>) message), failure == null ? id.toString() : failure.toString());
        }

        @Override
        public void close() {}
    }

    private static final class ConsumerSpy implements ConsumerInterceptor<byte[]> {
        final List<String> consumed = new ArrayList<>();
        final AtomicInteger acknowledged = new AtomicInteger();

        @Override
        public Message<byte[]> beforeConsume(Consumer<byte[]> consumer, Message<byte[]> message) {
            consumed.add(Context.text(message));
            return message;
        }

        @Override
        public void onAcknowledge(Consumer<byte[]> consumer, MessageId id, Throwable failure) {
            if (failure == null) {
                acknowledged.incrementAndGet();
            }
        }

        @Override
        public void onAcknowledgeCumulative(Consumer<byte[]> consumer, MessageId id, Throwable failure) {}

        @Override
        public void onNegativeAcksSend(Consumer<byte[]> consumer, Set<MessageId> ids) {}

        @Override
        public void onAckTimeoutSend(Consumer<byte[]> consumer, Set<MessageId> ids) {}

        @Override
        public void close() {}
    }
}

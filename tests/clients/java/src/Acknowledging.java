import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;

/** Scenarios of acknowledgements and of what comes again. */
final class Acknowledging {
    private static final long DELAY_MS = 2_000;
    private static final long DELAY_MS_LEAST = 1_500;
    private static final long DELAY_MS_MOST = 10_000;

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("ack-individual", Acknowledging::individual);
        SCENARIOS.put("ack-cumulative", Acknowledging::cumulative);
        SCENARIOS.put("ack-batch-index", Acknowledging::batchIndex);
        SCENARIOS.put("nack", Acknowledging::nack);
        SCENARIOS.put("dead-letter", Acknowledging::deadLetter);
        SCENARIOS.put("retry-letter", Acknowledging::retryLetter);
        SCENARIOS.put("delayed", Acknowledging::delayed);
    }

    private Acknowledging() {}

    private static List<String> oddOrEven(int remainder) {
        List<String> texts = new ArrayList<>();
        for (int number = remainder; number < 10; number += 2) {
            texts.add("m" + number);
        }
        return texts;
    }

    private static void individual(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Context.sendNumbered(context.unbatched().create(), "m", 0, 10);
        List<Message<byte[]>> messages = Context.receive(consumer, 10);
        for (int number = 1; number < 10; number += 2) {
            consumer.acknowledge(messages.get(number));
        }
        consumer.close();
        Consumer<byte[]> next = context.consumer("sub").subscribe();
        Check.equal(Context.texts(Context.take(next, 5)), oddOrEven(0), "messages of the next consumer");
        Context.expectNothing(next);
        context.awaitBacklog("sub", 0);
    }

    private static void cumulative(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Context.sendNumbered(context.unbatched().create(), "m", 0, 10);
        consumer.acknowledgeCumulative(Context.receive(consumer, 10).get(4));
        consumer.close();
        context.awaitBacklog("sub", 5);
        Consumer<byte[]> next = context.consumer("sub").subscribe();
        Check.equal(Context.texts(Context.take(next, 5)), Context.numbered("m", 5, 10), "messages of the next consumer");
    }

    private static void batchIndex(Context context) throws Exception {
        ConsumerBuilder<byte[]> builder = context.consumer("sub").enableBatchIndexAcknowledgment(true);
        Consumer<byte[]> consumer = builder.clone().subscribe();
        Producer<byte[]> producer =
                context.producer().batchingMaxMessages(10).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
        Context.sendNumbered(producer, "m", 0, 10);
        List<Message<byte[]>> messages = Context.receive(consumer, 10);
        Check.equal(Publishing.batchIndex(messages.get(9).getMessageId()), 9, "index of the last message in its batch");
        for (int number = 1; number < 10; number += 2) {
            consumer.acknowledge(messages.get(number));
        }
        consumer.close();
        context.awaitBacklog("sub", 1);
        Consumer<byte[]> next = builder.clone().subscribe();
        Check.equal(Context.texts(Context.take(next, 5)), oddOrEven(0), "messages of the next consumer");
        Context.expectNothing(next);
        context.awaitBacklog("sub", 0);
    }

    /** A Shared consumer that gives back within 100 ms. */
    private static ConsumerBuilder<byte[]> returning(Context context) throws PulsarClientException {
        return context.consumer("sub")
                .subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS);
    }

    private static void nack(Context context) throws Exception {
        Consumer<byte[]> consumer = returning(context).subscribe();
        context.unbatched().create().send(Context.bytes("m0"));
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = Context.receive(consumer, 1).get(0);
            Check.equal(Context.text(message), "m0", "message");
            Check.equal(message.getRedeliveryCount(), count, "redelivery count");
            if (count < 2) {
                consumer.negativeAcknowledge(message);
            } else {
                consumer.acknowledge(message);
            }
        }
        Context.expectNothing(consumer);
        context.awaitBacklog("sub", 0);
    }

    private static void deadLetter(Context context) throws Exception {
        String dead = context.topic + "-dead";
        Consumer<byte[]> deads = context.client().newConsumer().topic(dead).subscriptionName("deads").subscribe();
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(dead).build();
        Consumer<byte[]> consumer = returning(context).deadLetterPolicy(policy).subscribe();
        context.unbatched().create().newMessage().key("k").property("a", "b").value(Context.bytes("m0")).send();
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = Context.receive(consumer, 1).get(0);
            Check.equal(message.getRedeliveryCount(), count, "redelivery count");
            consumer.negativeAcknowledge(message);
        }
        Message<byte[]> message = Context.take(deads, 1).get(0);
        Check.equal(Context.text(message), "m0", "message on the dead letter topic");
        Check.equal(message.getKey(), "k", "its key");
        Check.equal(message.getProperty("a"), "b", "its property");
        Check.equal(message.getProperty("REAL_TOPIC"), context.topic, "where it comes from");
        Context.expectNothing(consumer);
        context.awaitBacklog("sub", 0);
    }

    private static void retryLetter(Context context) throws Exception {
        String retry = context.topic + "-retry";
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).retryLetterTopic(retry).build();
        Consumer<byte[]> consumer = returning(context).enableRetry(true).deadLetterPolicy(policy).subscribe();
        context.producer().create().newMessage().property("a", "b").value(Context.bytes("m0")).send();
        consumer.reconsumeLater(Context.receive(consumer, 1).get(0), 1, TimeUnit.SECONDS);
        Message<byte[]> again = Context.take(consumer, 1).get(0);
        Check.equal(Context.text(again), "m0", "message that came again");
        Check.equal(again.getTopicName(), retry, "its topic");
        Check.equal(again.getProperty("a"), "b", "its property");
        Check.equal(again.getProperty("RECONSUMETIMES"), "1", "its count");
        Check.equal(again.getProperty("REAL_TOPIC"), context.topic, "where it comes from");
        context.awaitBacklog("sub", 0);
    }

    private static void delayed(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> producer = context.producer().create();
        long sent = System.nanoTime();
        producer.newMessage().deliverAfter(DELAY_MS, TimeUnit.MILLISECONDS).value(Context.bytes("late")).send();
        producer.send(Context.bytes("soon"));
        Check.equal(Context.texts(Context.take(consumer, 1)), List.of("soon"), "first message");
        Check.equal(Context.texts(Context.take(consumer, 1)), List.of("late"), "second message");
        long elapsedMs = (System.nanoTime() - sent) / 1_000_000;
        Check.that(DELAY_MS_LEAST <= elapsedMs && elapsedMs <= DELAY_MS_MOST, "the delayed one came after " + elapsedMs + " ms");
    }
}

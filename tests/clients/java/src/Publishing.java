import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException.InvalidMessageException;
import org.apache.pulsar.client.api.PulsarClientException.TopicTerminatedException;

/** Scenarios of what producers write, and what comes back. */
final class Publishing {
    private static final int COMPRESSED_BYTES = 10_000;
    private static final int CHUNKED_BYTES = 12_000_000;
    private static final int TOO_LARGE_BYTES = 6_000_000;
    private static final long EVENT_TIME_MS = 1_234_567_890_123L;

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("plain", Publishing::plain);
        SCENARIOS.put("compress-lz4", context -> compressed(context, CompressionType.LZ4));
        SCENARIOS.put("compress-zlib", context -> compressed(context, CompressionType.ZLIB));
        SCENARIOS.put("compress-zstd", context -> compressed(context, CompressionType.ZSTD));
        SCENARIOS.put("compress-snappy", context -> compressed(context, CompressionType.SNAPPY));
        SCENARIOS.put("batches", Publishing::batches);
        SCENARIOS.put("keys", Publishing::keys);
        SCENARIOS.put("properties", Publishing::properties);
        SCENARIOS.put("event-time", Publishing::eventTime);
        SCENARIOS.put("chunks", Publishing::chunks);
        SCENARIOS.put("too-large", Publishing::tooLarge);
        SCENARIOS.put("non-persistent", Publishing::nonPersistent);
        SCENARIOS.put("deduplication", Publishing::deduplication);
        SCENARIOS.put("end-of-topic", Publishing::endOfTopic);
        SCENARIOS.put("encryption", Publishing::encryption);
    }

    private Publishing() {}

    private static void plain(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> producer = context.producer().create();
        Check.that(!producer.getProducerName().isEmpty(), "the producer has no name");
        for (int number = 0; number < 10; number++) {
            producer.send(Context.bytes("m" + number));
        }
        List<Message<byte[]>> messages = Context.take(consumer, 10);
        Check.equal(Context.texts(messages), Context.numbered("m", 0, 10), "messages");
        for (int number = 1; number < 10; number++) {
            MessageId before = messages.get(number - 1).getMessageId();
            MessageId after = messages.get(number).getMessageId();
            Check.that(before.compareTo(after) < 0, before + " comes before " + after);
        }
        context.awaitBacklog("sub", 0);
    }

    private static void compressed(Context context, CompressionType type) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> batching = context.producer().compressionType(type).create();
        Producer<byte[]> unbatched = context.unbatched().compressionType(type).create();
        for (int number = 0; number < 5; number++) {
            batching.sendAsync(compressible(number));
        }
        batching.flush();
        for (int number = 5; number < 10; number++) {
            unbatched.send(compressible(number));
        }
        List<Message<byte[]>> messages = Context.take(consumer, 10);
        for (int number = 0; number < 10; number++) {
            byte[] found = messages.get(number).getData();
            Check.that(Arrays.equals(found, compressible(number)), "message " + number + " is not equal to what was sent");
        }
    }

    /** Bytes of which half are random, so that no compression is without effect or extreme. */
    private static byte[] compressible(int seed) {
        byte[] bytes = new byte[COMPRESSED_BYTES];
        Random random = new Random(seed);
        for (int index = 0; index < bytes.length; index += 2) {
            bytes[index] = (byte) random.nextInt();
        }
        return bytes;
    }

    private static void batches(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> producer =
                context.producer().batchingMaxMessages(20).batchingMaxPublishDelay(200, TimeUnit.MILLISECONDS).create();
        Context.sendNumbered(producer, "m", 0, 100);
        List<Message<byte[]>> messages = Context.take(consumer, 100);
        Check.equal(Context.texts(messages), Context.numbered("m", 0, 100), "messages");
        int indexMax = messages.stream().mapToInt(message -> batchIndex(message.getMessageId())).max().orElseThrow();
        Check.that(indexMax > 0 && indexMax < 20, "the highest batch index is " + indexMax + ", with 20 messages at most");
    }

    /** Its place in the batch, 0 the first; -1 without batch. Only the text form has it in all releases. */
    static int batchIndex(MessageId id) {
        String[] parts = id.toString().split(":");
        return parts.length > 3 ? Integer.parseInt(parts[3]) : -1;
    }

    private static void keys(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        byte[] ordering = {0, 1, (byte) 255};
        byte[] binary = {(byte) 200, 0, 7};
        for (boolean batching : List.of(true, false)) {
            Producer<byte[]> producer = context.producer().enableBatching(batching).create();
            producer.newMessage().key("a key").orderingKey(ordering).value(Context.bytes("both")).send();
            producer.newMessage().keyBytes(binary).value(Context.bytes("binary")).send();
            producer.newMessage().value(Context.bytes("none")).send();
            List<Message<byte[]>> messages = Context.take(consumer, 3);
            Check.equal(Context.texts(messages), List.of("both", "binary", "none"), "messages");
            Message<byte[]> both = messages.get(0);
            Check.equal(both.getKey(), "a key", "key");
            Check.that(both.hasOrderingKey() && Arrays.equals(both.getOrderingKey(), ordering), "not its ordering key");
            Check.that(Arrays.equals(messages.get(1).getKeyBytes(), binary), "not its key of bytes");
            Check.that(messages.get(1).hasBase64EncodedKey(), "a key of bytes is not marked");
            Message<byte[]> none = messages.get(2);
            Check.that(!none.hasKey() && none.getKey() == null, "a key that was not sent: " + none.getKey());
            Check.that(!none.hasOrderingKey(), "an ordering key that was not sent");
        }
    }

    private static void properties(Context context) throws Exception {
        Map<String, String> properties = Map.of("plain", "1", "empty", "", "text", "Grüße, 世界 🙂", "ключ", "значение");
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        for (boolean batching : List.of(true, false)) {
            Producer<byte[]> producer = context.producer().enableBatching(batching).create();
            producer.newMessage().properties(properties).value(Context.bytes("with")).send();
            producer.newMessage().value(Context.bytes("without")).send();
            List<Message<byte[]>> messages = Context.take(consumer, 2);
            Check.equal(messages.get(0).getProperties(), properties, "properties");
            Check.equal(messages.get(1).getProperties(), Map.of(), "properties of a message without");
        }
    }

    private static void eventTime(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> producer = context.producer().create();
        long before = System.currentTimeMillis();
        producer.newMessage().eventTime(EVENT_TIME_MS).value(Context.bytes("m0")).send();
        producer.newMessage().value(Context.bytes("m1")).send();
        long after = System.currentTimeMillis();
        List<Message<byte[]>> messages = Context.take(consumer, 2);
        Check.equal(messages.get(0).getEventTime(), EVENT_TIME_MS, "event time");
        Check.equal(messages.get(1).getEventTime(), 0L, "event time of a message without");
        for (Message<byte[]> message : messages) {
            long published = message.getPublishTime();
            Check.that(before <= published && published <= after, "published at " + published + ", sent at " + before);
        }
    }

    private static void chunks(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> producer = context.unbatched().enableChunking(true).create();
        byte[] large = new byte[CHUNKED_BYTES];
        new Random(1).nextBytes(large);
        producer.sendAsync(Context.bytes("before"));
        producer.sendAsync(large);
        producer.send(Context.bytes("after"));
        List<Message<byte[]>> messages = Context.take(consumer, 3);
        Check.equal(Context.text(messages.get(0)), "before", "first message");
        Check.that(Arrays.equals(messages.get(1).getData(), large), "the chunked message is not equal to what was sent");
        Check.equal(Context.text(messages.get(2)), "after", "last message");
        context.awaitBacklog("sub", 0);
    }

    private static void tooLarge(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        for (boolean batching : List.of(true, false)) {
            Producer<byte[]> producer = context.producer().enableBatching(batching).create();
            Check.refused(
                    InvalidMessageException.class,
                    () -> producer.send(new byte[TOO_LARGE_BYTES]),
                    "a message of " + TOO_LARGE_BYTES + " bytes");
            producer.send(Context.bytes("small"));
            Check.equal(Context.texts(Context.take(consumer, 1)), List.of("small"), "message after it");
        }
    }

    private static void nonPersistent(Context context) throws Exception {
        String topic = context.topic.replace("persistent://", "non-persistent://");
        Consumer<byte[]> consumer = context.client().newConsumer().topic(topic).subscriptionName("sub").subscribe();
        Producer<byte[]> producer = context.client().newProducer().topic(topic).create();
        for (int number = 0; number < 10; number++) {
            producer.send(Context.bytes("m" + number));
        }
        List<Message<byte[]>> messages = Context.take(consumer, 10);
        Check.equal(Context.texts(messages), Context.numbered("m", 0, 10), "messages");
        Check.equal(messages.get(0).getTopicName(), topic, "topic");
    }

    private static void deduplication(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        context.ask("deduplicate", context.topic);
        for (int start : List.of(0, 5)) {
            Producer<byte[]> producer = context.producer().producerName("deduplicated").create();
            Check.equal(producer.getLastSequenceId(), start == 0 ? -1L : 9L, "last sequence id of the producer");
            for (int number = start; number < start + 10; number++) {
                producer.newMessage().sequenceId(number).value(Context.bytes("m" + number)).send();
            }
            producer.close();
        }
        Check.equal(Context.texts(Context.take(consumer, 15)), Context.numbered("m", 0, 15), "messages");
        Context.expectNothing(consumer);
    }

    private static void endOfTopic(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> producer = context.producer().create();
        Context.sendNumbered(producer, "m", 0, 5);
        context.ask("terminate", context.topic);
        Check.refused(TopicTerminatedException.class, () -> producer.send(Context.bytes("late")), "a send after the end");
        Check.that(!consumer.hasReachedEndOfTopic(), "told of the end before anything is acknowledged");
        Check.equal(Context.texts(Context.take(consumer, 5)), Context.numbered("m", 0, 5), "messages");
        Check.soon(consumer::hasReachedEndOfTopic, "the consumer is not told that the topic has ended");
        Consumer<byte[]> later = context.consumer("later").subscribe();
        Check.equal(Context.texts(Context.take(later, 5)), Context.numbered("m", 0, 5), "messages of a later subscription");
        Check.soon(later::hasReachedEndOfTopic, "the later consumer is not told that the topic has ended");
    }

    private static void encryption(Context context) throws Exception {
        String privateKey = context.keys.resolve("private.pem").toUri().toString();
        String publicKey = context.keys.resolve("public.pem").toUri().toString();
        Consumer<byte[]> open = context.consumer("open").defaultCryptoKeyReader(privateKey).subscribe();
        Consumer<byte[]> refusing = context.consumer("refusing").subscribe();
        Consumer<byte[]> blind = context.consumer("blind").cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe();
        Producer<byte[]> producer = context.producer().addEncryptionKey("a-key").defaultCryptoKeyReader(publicKey).create();
        Set<ByteBuffer> clear = new HashSet<>();
        for (int number = 0; number < 5; number++) {
            producer.send(Context.bytes("m" + number));
            clear.add(ByteBuffer.wrap(Context.bytes("m" + number)));
        }
        List<Message<byte[]>> messages = Context.take(open, 5);
        Check.equal(Context.texts(messages), Context.numbered("m", 0, 5), "decrypted messages");
        for (Message<byte[]> message : Context.take(blind, 5)) {
            Check.that(!clear.contains(ByteBuffer.wrap(message.getData())), "a message is in the clear: " + Context.text(message));
            Check.equal(message.getEncryptionCtx().orElseThrow().getKeys().keySet(), Set.of("a-key"), "keys of a message");
        }
        Context.expectNothing(refusing);
    }
}

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TableView;

/** Scenarios of readers, table views and positions. */
final class Reading {
    private static final long BETWEEN_MS = 50;

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("reader", Reading::reader);
        SCENARIOS.put("last-message-id", Reading::lastMessageId);
        SCENARIOS.put("table-view", Reading::tableView);
        SCENARIOS.put("read-compacted", Reading::readCompacted);
        SCENARIOS.put("seek-id", Reading::seekId);
        SCENARIOS.put("seek-time", Reading::seekTime);
    }

    private Reading() {}

    /** Messages m0, m1, ..., each stored before the next is sent. */
    private static List<MessageId> sendOneByOne(Producer<byte[]> producer, int start, int end) throws PulsarClientException {
        List<MessageId> ids = new ArrayList<>();
        for (int number = start; number < end; number++) {
            ids.add(producer.send(Context.bytes("m" + number)));
        }
        return ids;
    }

    private static void reader(Context context) throws Exception {
        List<MessageId> ids = sendOneByOne(context.producer().create(), 0, 10);
        Reader<byte[]> reader = reader(context, MessageId.earliest).create();
        Check.equal(readAll(reader), Context.numbered("m", 0, 10), "messages from Earliest");
        Reader<byte[]> after = reader(context, ids.get(4)).create();
        Check.equal(readAll(after), Context.numbered("m", 5, 10), "messages after the 5th");
        Reader<byte[]> with = reader(context, ids.get(4)).startMessageIdInclusive().create();
        Check.equal(readAll(with), Context.numbered("m", 4, 10), "messages from the 5th on");
        Reader<byte[]> latest = reader(context, MessageId.latest).create();
        Check.that(!latest.hasMessageAvailable(), "a reader at Latest has a message");
    }

    private static ReaderBuilder<byte[]> reader(Context context, MessageId start) throws PulsarClientException {
        return context.client().newReader().topic(context.topic).startMessageId(start);
    }

    private static List<String> readAll(Reader<byte[]> reader) throws PulsarClientException {
        List<String> texts = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<byte[]> message = reader.readNext(Context.ARRIVES_WITHIN_S, TimeUnit.SECONDS);
            Check.that(message != null, "a message is said to be available, but does not come after " + texts);
            texts.add(Context.text(message));
        }
        return texts;
    }

    @SuppressWarnings("deprecation") // the only method of the old release
    private static void lastMessageId(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        MessageId alone = sendOneByOne(context.unbatched().create(), 0, 3).get(2);
        Check.equal(consumer.getLastMessageId(), alone, "last message id");
        Producer<byte[]> batching = context.producer().batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
        batching.sendAsync(Context.bytes("m3"));
        MessageId last = batching.sendAsync(Context.bytes("m4")).get();
        Check.equal(consumer.getLastMessageId().toString(), last.toString(), "last message id of a batch");
        Check.equal(Publishing.batchIndex(last), 1, "index of the last message in its batch");
    }

    private static void tableView(Context context) throws Exception {
        Producer<String> producer = context.client().newProducer(Schema.STRING).topic(context.topic).create();
        Map<String, String> expected = new TreeMap<>();
        for (int number = 0; number < 15; number++) {
            producer.newMessage().key("k" + number % 5).value("v" + number).send();
            expected.put("k" + number % 5, "v" + number);
        }
        TableView<String> view = context.client()
                .newTableViewBuilder(Schema.STRING)
                .topic(context.topic)
                .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                .create();
        Check.equal(contents(view), expected, "table view");
        producer.newMessage().key("k3").value("updated").send();
        expected.put("k3", "updated");
        Check.soon(() -> contents(view).equals(expected), "the table view does not follow an update");
        view.close();
    }

    private static void readCompacted(Context context) throws Exception {
        Producer<byte[]> oneByOne = context.unbatched().create();
        for (String key : List.of("a", "b", "c", "d", "e")) {
            oneByOne.newMessage().key(key).value(Context.bytes(key + "1")).send();
        }
        Producer<byte[]> batching = context.producer().batchingMaxPublishDelay(10, TimeUnit.SECONDS).create();
        for (String key : List.of("a", "b", "c")) {
            batching.newMessage().key(key).value(Context.bytes(key + "2")).sendAsync();
        }
        batching.newMessage().key("d").value(new byte[0]).sendAsync();
        batching.flush();
        oneByOne.newMessage().key("a").value(Context.bytes("a3")).send();
        context.ask("compact", context.topic);
        Reader<byte[]> reader = reader(context, MessageId.earliest).readCompacted(true).create();
        List<String> view = new ArrayList<>(List.of("e1", "b2", "c2", "a3"));
        Check.equal(readAll(reader), view, "messages of the compacted view");
        oneByOne.newMessage().key("f").value(Context.bytes("f1")).send();
        Check.equal(readAll(reader), List.of("f1"), "messages after the compacted view");
        view.add("f1");
        Consumer<byte[]> consumer = context.consumer("compacted").readCompacted(true).subscribe();
        Check.equal(Context.texts(Context.take(consumer, 5)), view, "messages to a consumer of the compacted view");
        Context.expectNothing(consumer);
        List<String> all = List.of("a1", "b1", "c1", "d1", "e1", "a2", "b2", "c2", "", "a3", "f1");
        Check.equal(Context.texts(Context.take(context.consumer("all").subscribe(), 11)), all, "all messages");
        TableView<byte[]> table = context.client()
                .newTableViewBuilder(Schema.BYTES)
                .topic(context.topic)
                .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                .create();
        Map<String, String> values = new TreeMap<>();
        table.forEach((key, value) -> values.put(key, new String(value, StandardCharsets.UTF_8)));
        Check.equal(values, Map.of("a", "a3", "b", "b2", "c", "c2", "e", "e1", "f", "f1"), "values of the table view");
        table.close();
    }

    private static Map<String, String> contents(TableView<String> view) {
        Map<String, String> contents = new TreeMap<>();
        view.forEach(contents::put);
        return contents;
    }

    private static void seekId(Context context) throws Exception {
        List<MessageId> ids = sendOneByOne(context.producer().create(), 0, 10);
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Context.take(consumer, 10);
        consumer.seek(ids.get(3));
        Check.equal(Context.texts(Context.take(consumer, 6)), Context.numbered("m", 4, 10), "messages after the seek");
        consumer.seek(MessageId.earliest);
        Check.equal(Context.texts(Context.take(consumer, 10)), Context.numbered("m", 0, 10), "messages from Earliest");
        Context.expectNothing(consumer);
        consumer.close();
        Consumer<byte[]> inclusive = context.consumer("inclusive").startMessageIdInclusive().subscribe();
        Context.take(inclusive, 10);
        inclusive.seek(ids.get(3));
        Check.equal(Context.texts(Context.take(inclusive, 7)), Context.numbered("m", 3, 10), "messages after an inclusive seek");
    }

    private static void seekTime(Context context) throws Exception {
        Producer<byte[]> producer = context.producer().create();
        sendOneByOne(producer, 0, 5);
        Thread.sleep(BETWEEN_MS);
        sendOneByOne(producer, 5, 10);
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        List<Message<byte[]>> messages = Context.take(consumer, 10);
        consumer.seek((messages.get(4).getPublishTime() + messages.get(5).getPublishTime()) / 2);
        Check.equal(Context.texts(Context.take(consumer, 5)), Context.numbered("m", 5, 10), "messages after the seek");
        Context.expectNothing(consumer);
    }
}

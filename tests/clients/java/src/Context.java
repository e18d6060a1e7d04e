import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What one scenario has: its topics, clients that are closed after it, and the service to ask. */
final class Context {
    static final int ARRIVES_WITHIN_S = 20;
    private static final int NOTHING_WITHIN_MS = 300;

    final String topic;
    final Path keys;
    private final String serviceUrl;
    private final BufferedReader answers;
    private final List<PulsarClient> clients = new ArrayList<>();
    private PulsarClient first;

    Context(String serviceUrl, String topic, Path keys, BufferedReader answers) {
        this.serviceUrl = serviceUrl;
        this.topic = topic;
        this.keys = keys;
        this.answers = answers;
    }

    PulsarClient client() throws PulsarClientException {
        if (first == null) {
            first = otherClient();
        }
        return first;
    }

    /** A client with a connection of its own. */
    synchronized PulsarClient otherClient() throws PulsarClientException {
        PulsarClient client = PulsarClient.builder().serviceUrl(serviceUrl).ioThreads(1).listenerThreads(1).build();
        clients.add(client);
        return client;
    }

    /** A client that can begin transactions. */
    synchronized PulsarClient transactional() throws PulsarClientException {
        PulsarClient client = PulsarClient.builder()
                .serviceUrl(serviceUrl)
                .ioThreads(1)
                .listenerThreads(1)
                .enableTransaction(true)
                .build();
        clients.add(client);
        return client;
    }

    /** A consumer that starts at Earliest and sends acknowledgements within 10 ms. */
    ConsumerBuilder<byte[]> consumer(String subscription) throws PulsarClientException {
        return client().newConsumer()
                .topic(topic)
                .subscriptionName(subscription)
                .acknowledgmentGroupTime(10, TimeUnit.MILLISECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    ProducerBuilder<byte[]> producer() throws PulsarClientException {
        return client().newProducer().topic(topic);
    }

    /** Every message an entry of its own. */
    ProducerBuilder<byte[]> unbatched() throws PulsarClientException {
        return producer().enableBatching(false);
    }

    /** Sends the texts PREFIX0, PREFIX1, ..., numbered from `start` to before `end`; returns when all are stored. */
    static void sendNumbered(Producer<byte[]> producer, String prefix, int start, int end) throws PulsarClientException {
        for (int number = start; number < end; number++) {
            producer.sendAsync(bytes(prefix + number));
        }
        producer.flush();
    }

    /** The texts that `sendNumbered` sends. */
    static List<String> numbered(String prefix, int start, int end) {
        List<String> texts = new ArrayList<>();
        for (int number = start; number < end; number++) {
            texts.add(prefix + number);
        }
        return texts;
    }

    /** The next messages, in the order of arrival. */
    static <T> List<Message<T>> receive(Consumer<T> consumer, int count) throws PulsarClientException {
        List<Message<T>> messages = new ArrayList<>();
        while (messages.size() < count) {
            Message<T> message = consumer.receive(ARRIVES_WITHIN_S, TimeUnit.SECONDS);
            Check.that(message != null, messages.size() + " of " + count + " messages came, last " + last(messages));
            messages.add(message);
        }
        return messages;
    }

    /** The next messages, each acknowledged. */
    static <T> List<Message<T>> take(Consumer<T> consumer, int count) throws PulsarClientException {
        List<Message<T>> messages = receive(consumer, count);
        for (Message<T> message : messages) {
            consumer.acknowledge(message);
        }
        return messages;
    }

    static void expectNothing(Consumer<?> consumer) throws PulsarClientException {
        Message<?> message = consumer.receive(NOTHING_WITHIN_MS, TimeUnit.MILLISECONDS);
        Check.that(message == null, () -> "a message more than there should be: " + text(message));
    }

    static String text(Message<?> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    static List<String> texts(List<Message<byte[]>> messages) {
        return messages.stream().map(Context::text).toList();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static <T> String last(List<Message<T>> messages) {
        return messages.isEmpty() ? "none" : text(messages.get(messages.size() - 1));
    }

    /** What the service answers to `ask`; "" for a plain `done`. */
    String ask(String... words) throws IOException {
        synchronized (answers) {
            String[] line = new String[words.length + 1];
            line[0] = "ask";
            System.arraycopy(words, 0, line, 1, words.length);
            ClientProgram.say(line);
            String answer = answers.readLine();
            Check.that(answer != null && answer.startsWith("done"), String.join(" ", words) + " was answered: " + answer);
            return answer.substring("done".length()).trim();
        }
    }

    /** Waits until the subscription has so many entries that are not acknowledged. */
    void awaitBacklog(String subscription, int entries) throws Exception {
        awaitBacklog(topic, subscription, entries);
    }

    void awaitBacklog(String of, String subscription, int entries) throws Exception {
        Check.soon(
                () -> ask("backlog", of, subscription).equals(Integer.toString(entries)),
                "the backlog of " + subscription + " is not " + entries);
    }

    /** Closes all clients with their producers and consumers; each takes two seconds for itself, so nothing waits. */
    List<CompletableFuture<Void>> close() {
        return clients.stream().map(PulsarClient::closeAsync).toList();
    }
}

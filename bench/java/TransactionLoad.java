import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Transactions with Apache Pulsar's own client: the argument is the service URL, each line of the input one load.
 *
 * <p>`cycle TOPIC SIZE IN_FLIGHT WARM_UP SECONDS INPUTS`, `publish TOPIC SIZE WINDOW WARM_UP SECONDS` (size 0: outside
 * of transactions), `open TOPIC COUNT` and `abort TOPIC COUNT`. Loads with a warm-up print `began` after it; each ends
 * with a line `ended` and its figures.
 */
public final class TransactionLoad {
    private static final byte[] PAYLOAD = new byte[100];
    private static final int PREPARING = 500;

    private final PulsarClient client;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private TransactionLoad(PulsarClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        PulsarClient client =
                PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
        TransactionLoad load = new TransactionLoad(client);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                System.out.println("ended " + load.run(line.split(" ")));
            }
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // closing the client would only take its time
    }

    private String run(String[] words) throws Exception {
        String topic = words[1];
        int number = Integer.parseInt(words[2]);
        switch (words[0]) {
            case "cycle":
                return cycle(topic, number, Integer.parseInt(words[3]), Double.parseDouble(words[4]),
                        Double.parseDouble(words[5]), Integer.parseInt(words[6]));
            case "publish":
                return publish(topic, number, Integer.parseInt(words[3]), Double.parseDouble(words[4]),
                        Double.parseDouble(words[5]));
            case "open":
                return leave(topic, number, false);
            case "abort":
                return leave(topic, number, true);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private CompletableFuture<Transaction> begin() {
        return client.newTransaction().withTransactionTimeout(1, TimeUnit.HOURS).build();
    }

    private void check() throws Exception {
        if (failure.get() != null) {
            throw new Exception(failure.get());
        }
    }

    /** Consume, publish and acknowledge `size` messages in each transaction; `inFlight` of them at once. */
    private String cycle(String topic, int size, int inFlight, double warmUp, double seconds, int inputs)
            throws Exception {
        Cycle cycle = new Cycle(topic, size, inputs);
        List<CompletableFuture<Void>> slots = new ArrayList<>();
        for (int slot = 0; slot < inFlight; slot++) {
            slots.add(CompletableFuture.runAsync(() -> { }).thenCompose(nothing -> cycle.next()));
        }
        Thread.sleep((long) (warmUp * 1e3));
        System.out.println("began");
        long start = System.nanoTime();
        CompletableFuture<Void> all = CompletableFuture.allOf(slots.toArray(new CompletableFuture[0]));
        long until = start + (long) (seconds * 1e9);
        while (!all.isDone() && System.nanoTime() < until) {
            Thread.sleep(1);
        }
        long end = System.nanoTime();
        System.out.println("over");
        cycle.stopped = true;
        all.get(60, TimeUnit.SECONDS);
        check();
        cycle.close();
        return cycle.summary(start, end);
    }

    private final class Cycle {
        private final int size;
        private final Producer<byte[]> producer;
        private final Consumer<byte[]> consumer;
        private final ConcurrentLinkedQueue<long[]> done = new ConcurrentLinkedQueue<>();
        private volatile boolean stopped;
        private int left;

        Cycle(String topic, int size, int inputs) throws Exception {
            this.size = size;
            left = inputs / size;
            consumer = client.newConsumer().topic(topic).subscriptionName("bench")
                    .subscriptionType(SubscriptionType.Shared)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            fill(topic, inputs);
            producer = client.newProducer().topic(topic + "-out").enableBatching(size > 1).create();
        }

        private synchronized boolean take() {
            return !stopped && left-- > 0;
        }

        CompletableFuture<Void> next() {
            if (!take() || failure.get() != null) {
                return CompletableFuture.completedFuture(null);
            }
            List<CompletableFuture<MessageId>> received = new ArrayList<>();
            for (int number = 0; number < size; number++) {
                received.add(consumer.receiveAsync().thenApply(message -> message.getMessageId()));
            }
            CompletableFuture<Void> one = CompletableFuture.allOf(received.toArray(new CompletableFuture[0]))
                    .thenCompose(nothing -> transaction(received));
            // Off the thread of the answer, so that a long run of transactions is no long chain of calls.
            return one.handle((nothing, failed) -> {
                if (failed != null) {
                    failure.compareAndSet(null, failed);
                }
                return null;
            }).thenComposeAsync(nothing -> next());
        }

        private CompletableFuture<Void> transaction(List<CompletableFuture<MessageId>> received) {
            long begun = System.nanoTime();
            return begin().thenCompose(transaction -> {
                List<CompletableFuture<?>> parts = new ArrayList<>();
                for (CompletableFuture<MessageId> id : received) {
                    parts.add(producer.newMessage(transaction).value(PAYLOAD).sendAsync());
                    parts.add(consumer.acknowledgeAsync(id.join(), transaction));
                }
                return CompletableFuture.allOf(parts.toArray(new CompletableFuture[0])).thenCompose(nothing -> {
                    long ending = System.nanoTime();
                    return transaction.commit().thenRun(() -> {
                        long ended = System.nanoTime();
                        done.add(new long[] {begun, ending, ended});
                    });
                });
            });
        }

        /** Transactions, seconds, and microseconds of their commits and of the whole at 0.5 and 0.99. */
        String summary(long start, long end) {
            List<long[]> counted = new ArrayList<>();
            for (long[] one : done) {
                if (one[2] >= start && one[2] < end) {
                    counted.add(one);
                }
            }
            long[] commits = counted.stream().mapToLong(one -> one[2] - one[1]).sorted().toArray();
            long[] whole = counted.stream().mapToLong(one -> one[2] - one[0]).sorted().toArray();
            return counted.size() + " " + (end - start) / 1e9 + " " + quantile(commits, 0.5) + " "
                    + quantile(commits, 0.99) + " " + quantile(whole, 0.5) + " " + quantile(whole, 0.99);
        }

        void close() throws Exception {
            producer.close();
            consumer.close();
        }
    }

    private static double quantile(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, share * sorted.length)] / 1e3;
    }

    private void fill(String topic, int messages) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            Semaphore window = new Semaphore(PREPARING);
            for (int number = 0; number < messages; number++) {
                window.acquire();
                producer.sendAsync(PAYLOAD).whenComplete((id, failed) -> confirmed(window, failed));
            }
            window.acquire(PREPARING);
        }
        check();
    }

    private void confirmed(Semaphore window, Throwable failed) {
        if (failed != null) {
            failure.compareAndSet(null, failed);
        }
        window.release();
    }

    /** Publish without batches, `window` messages in flight, `size` in each transaction, or outside with 0. */
    private String publish(String topic, int size, int window, double warmUp, double seconds) throws Exception {
        Semaphore free = new Semaphore(window);
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            List<CompletableFuture<Void>> commits = new ArrayList<>();
            publish(producer, size, free, warmUp, commits);
            System.out.println("began");
            long start = System.nanoTime();
            long messages = publish(producer, size, free, seconds, commits);
            double taken = (System.nanoTime() - start) / 1e9;
            System.out.println("over");
            free.acquire(window);
            CompletableFuture.allOf(commits.toArray(new CompletableFuture[0])).get(60, TimeUnit.SECONDS);
            check();
            return messages + " " + taken;
        }
    }

    private long publish(Producer<byte[]> producer, int size, Semaphore free, double seconds,
            List<CompletableFuture<Void>> commits) throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long messages = 0;
        CompletableFuture<Transaction> coming = size > 0 ? begin() : null;
        while (System.nanoTime() < end) {
            check();
            Transaction transaction = size > 0 ? coming.get() : null;
            coming = size > 0 ? begin() : null;
            List<CompletableFuture<MessageId>> sends = new ArrayList<>();
            for (int number = 0; number < (size > 0 ? size : 1_000); number++) {
                free.acquire();
                CompletableFuture<MessageId> send = size > 0
                        ? producer.newMessage(transaction).value(PAYLOAD).sendAsync()
                        : producer.sendAsync(PAYLOAD);
                sends.add(send.whenComplete((id, failed) -> confirmed(free, failed)));
                messages++;
            }
            if (size > 0) {
                commits.add(CompletableFuture.allOf(sends.toArray(new CompletableFuture[0]))
                        .thenCompose(nothing -> transaction.commit()));
            }
        }
        if (size > 0) {
            coming.get().abort().get();
        }
        return messages;
    }

    /** Transactions of one message, left open or aborted; prints the most and least bits of the last one. */
    private String leave(String topic, int count, boolean abort) throws Exception {
        Semaphore window = new Semaphore(PREPARING);
        AtomicReference<Transaction> last = new AtomicReference<>();
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < count; number++) {
                window.acquire();
                begin().thenCompose(transaction -> {
                    last.set(transaction);
                    return producer.newMessage(transaction).value(PAYLOAD).sendAsync()
                            .thenCompose(id -> abort ? transaction.abort() : CompletableFuture.completedFuture(null));
                }).whenComplete((nothing, failed) -> confirmed(window, failed));
            }
            window.acquire(PREPARING);
            check();
            if (abort) {
                producer.send(PAYLOAD); // what a consumer gets after all the aborted ones
            }
        }
        return last.get().getTxnID().getMostSigBits() + " " + last.get().getTxnID().getLeastSigBits();
    }
}

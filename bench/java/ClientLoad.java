import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Publishes with Apache Pulsar's own client, as fast as receipts allow: URL TOPIC SIZE WINDOW BATCHING WARM_UP SECONDS.
 *
 * <p>Prints `began` when the warm-up is over, and `ended MESSAGES SECONDS P50_US P99_US` for the seconds after it.
 */
public final class ClientLoad {
    private static final int BUCKET_US = 10;
    private static final int BUCKETS = 1_000_000; // ten seconds; what takes longer is in the last one

    private final Producer<byte[]> producer;
    private final byte[] payload;
    private final int window;
    private final Semaphore inFlight;
    private final AtomicIntegerArray latencies = new AtomicIntegerArray(BUCKETS);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile boolean counting;

    private ClientLoad(Producer<byte[]> producer, int size, int window) {
        this.producer = producer;
        this.payload = new byte[size];
        this.window = window;
        this.inFlight = new Semaphore(window);
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
        Producer<byte[]> producer = client.newProducer()
                .topic(arguments[1])
                .enableBatching(Boolean.parseBoolean(arguments[4]))
                .create();
        ClientLoad load = new ClientLoad(producer, Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
        load.publish(Double.parseDouble(arguments[5]));
        System.out.println("began");
        load.counting = true;
        double seconds = load.publish(Double.parseDouble(arguments[6]));
        load.counting = false;
        System.out.println("ended " + load.summary(seconds));
        load.inFlight.acquire(load.window);
        producer.close();
        System.exit(load.failure.get() == null ? 0 : 1); // closing the client would only take its time
    }

    /** Returns the seconds that it took; messages may still be in flight. */
    private double publish(double seconds) throws Exception {
        long start = System.nanoTime();
        long end = start + (long) (seconds * 1e9);
        long now = start;
        while (now < end && failure.get() == null) {
            inFlight.acquire();
            now = System.nanoTime();
            long sent = now;
            producer.sendAsync(payload).whenComplete((id, failed) -> confirmed(sent, failed));
        }
        return (System.nanoTime() - start) / 1e9;
    }

    private void confirmed(long sent, Throwable failed) {
        if (failed != null && failure.compareAndSet(null, failed)) {
            System.err.println("a send failed: " + failed);
        }
        if (counting && failed == null) {
            long us = (System.nanoTime() - sent) / 1_000;
            latencies.incrementAndGet((int) Math.min(us / BUCKET_US, BUCKETS - 1));
        }
        inFlight.release();
    }

    private String summary(double seconds) {
        long messages = 0;
        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            messages += latencies.get(bucket);
        }
        return messages + " " + seconds + " " + quantile(messages, 0.5) + " " + quantile(messages, 0.99);
    }

    /** Microseconds that so large a share of the messages did not exceed. */
    private int quantile(long messages, double share) {
        long seen = 0;
        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            seen += latencies.get(bucket);
            if (seen >= share * messages) {
                return (bucket + 1) * BUCKET_US;
            }
        }
        return BUCKETS * BUCKET_US;
    }
}

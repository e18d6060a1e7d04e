import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;

/** Scenarios that move or kill the broker which serves the topic, while messages are sent and received. */
final class Disruptive {
    private static final int MESSAGES = 300;
    private static final long EVERY_MS = 10;

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("moved", Disruptive::moved);
        SCENARIOS.put("killed", Disruptive::killed);
    }

    private Disruptive() {}

    /** A thread that sends all messages, one each 10 ms, without waiting for them to be stored. */
    private static final class Sending {
        final AtomicInteger sent = new AtomicInteger();
        final List<CompletableFuture<?>> stored = new ArrayList<>();
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        private final Thread thread;

        Sending(Producer<byte[]> producer) {
            thread = new Thread(() -> {
                try {
                    for (int number = 0; number < MESSAGES; number++) {
                        stored.add(producer.sendAsync(Context.bytes("m" + number)));
                        sent.incrementAndGet();
                        Thread.sleep(EVERY_MS);
                    }
                } catch (Throwable thrown) {
                    failure.set(thrown);
                }
            }, "sending");
            thread.setDaemon(true);
            thread.start();
        }

        void awaitSent(int count) throws Exception {
            Check.soon(() -> sent.get() >= count, "not " + count + " messages are sent");
        }

        /** Which numbers are stored, once each of the sends has ended; `failures` gets the reasons of the others. */
        Set<Integer> stored(List<String> failures) throws InterruptedException {
            thread.join();
            Check.that(failure.get() == null, "sending ended by " + failure.get());
            Set<Integer> numbers = new TreeSet<>();
            for (int number = 0; number < stored.size(); number++) {
                try {
                    stored.get(number).join();
                    numbers.add(number);
                } catch (CompletionException failed) {
                    failures.add("m" + number + ": " + failed.getCause());
                }
            }
            return numbers;
        }
    }

    /** A thread that receives and acknowledges all that comes, and keeps the numbers in order of arrival. */
    private static final class Receiving {
        final List<Integer> numbers = new ArrayList<>();
        private final Set<Integer> distinct = new HashSet<>();
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        Receiving(Consumer<byte[]> consumer) {
            Thread thread = new Thread(() -> {
                try {
                    while (true) {
                        Message<byte[]> message = consumer.receive();
                        add(Integer.parseInt(Context.text(message).substring(1)));
                        consumer.acknowledgeAsync(message);
                    }
                } catch (Throwable thrown) {
                    failure.set(thrown);
                }
            }, "receiving");
            thread.setDaemon(true);
            thread.start();
        }

        private synchronized void add(int number) {
            numbers.add(number);
            distinct.add(number);
        }

        private synchronized boolean hasAll(Set<Integer> wanted) {
            Check.that(failure.get() == null, "receiving ended by " + failure.get());
            return distinct.containsAll(wanted);
        }

        synchronized List<Integer> firstArrivals() {
            return new ArrayList<>(new LinkedHashSet<>(numbers));
        }

        void await(Set<Integer> wanted) throws Exception {
            try {
                Check.recovered(() -> hasAll(wanted), "");
            } catch (AssertionError late) {
                Set<Integer> missing = new TreeSet<>(wanted);
                missing.removeAll(firstArrivals());
                throw new AssertionError("stored, but not received: " + missing + late.getMessage());
            }
        }
    }

    private static void moved(Context context) throws Exception {
        Receiving receiving = new Receiving(context.consumer("sub").subscribe());
        Sending sending = new Sending(context.producer().create());
        for (int count : List.of(100, 200)) {
            sending.awaitSent(count);
            context.ask("move", context.topic);
        }
        List<String> failures = new ArrayList<>();
        Set<Integer> stored = sending.stored(failures);
        Check.equal(failures, List.of(), "sends that failed");
        receiving.await(stored);
        List<Integer> arrivals = receiving.firstArrivals();
        Check.equal(arrivals, arrivals.stream().sorted().toList(), "order of arrival but for repetitions");
        Check.equal(arrivals.size(), MESSAGES, "messages");
    }

    private static void killed(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Producer<byte[]> producer = context.producer().create();
        Receiving receiving = new Receiving(consumer);
        Sending sending = new Sending(producer);
        sending.awaitSent(100);
        context.ask("kill", context.topic);
        List<String> failures = new ArrayList<>();
        Set<Integer> stored = sending.stored(failures);
        Check.that(stored.size() >= MESSAGES / 2, "most sends failed: " + failures);
        receiving.await(stored);
        for (int number = MESSAGES; number < MESSAGES + 10; number++) {
            producer.sendAsync(Context.bytes("m" + number)).get(Context.ARRIVES_WITHIN_S, TimeUnit.SECONDS);
            stored.add(number);
        }
        receiving.await(stored);
        Check.that(consumer.isConnected() && producer.isConnected(), "producer or consumer is not connected in the end");
    }
}

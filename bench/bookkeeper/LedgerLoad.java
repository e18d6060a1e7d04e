import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.Semaphore;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * Appends to ledgers with BookKeeper's own client, as Pulsar's brokers do: METADATA_URI BOOKIES SECONDS_MAX.
 *
 * <p>Prints `formatted` when bookies may be started and `ready` when so many are there. Then it answers commands:
 * `open` makes a ledger, `load SIZE WINDOW SECONDS` appends to it with a window of entries in flight, waits until all
 * of them are confirmed and says `done ENTRIES SECONDS P50_US P95_US P99_US`, `close` closes it. It ends with its
 * input, and after SECONDS_MAX in any case.
 */
public final class LedgerLoad {
    private static final int BUCKET_US = 5;
    private static final int BUCKETS = 1_000_000; // five seconds; what takes longer is in the last one
    private static final byte[] PASSWORD = "bench".getBytes();
    private static final int ACK_QUORUM = 2;

    private final LedgerHandle ledger;
    private final ByteBuf payload;
    private final int window;
    private final Semaphore inFlight;
    private final int[] latencies = new int[BUCKETS]; // one thread confirms a ledger's entries
    private volatile int failure = BKException.Code.OK;

    private LedgerLoad(LedgerHandle ledger, int size, int window) {
        byte[] bytes = new byte[size];
        new Random().nextBytes(bytes);
        this.ledger = ledger;
        this.payload = PooledByteBufAllocator.DEFAULT.directBuffer(size).writeBytes(bytes);
        this.window = window;
        this.inFlight = new Semaphore(window);
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
            Runtime.getRuntime().halt(0); // closing the client would only take its time
        } catch (Throwable failed) {
            failed.printStackTrace();
            Runtime.getRuntime().halt(1); // the client's threads would go on
        }
    }

    private static void run(String[] arguments) throws Exception {
        int bookies = Integer.parseInt(arguments[1]);
        endAfter(Long.parseLong(arguments[2]));
        if (!BookKeeperAdmin.initNewCluster(
                new ServerConfiguration().setMetadataServiceUri(arguments[0]))) {
            throw new IllegalStateException("the metadata could not be formatted at " + arguments[0]);
        }
        System.out.println("formatted");
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(true); // this and the next as Pulsar's brokers do
        configuration.setThrottleValue(0); // otherwise 5,000 entries a second at most
        BookKeeper client = new BookKeeper(configuration);
        BookKeeperAdmin admin = new BookKeeperAdmin(client);
        while (admin.getAvailableBookies().size() < bookies) {
            Thread.sleep(100);
        }
        System.out.println("ready");
        serve(client, bookies);
    }

    private static void serve(BookKeeper client, int bookies) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        LedgerHandle ledger = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "open" -> {
                    ledger = client.createLedger(bookies, bookies, ACK_QUORUM, DigestType.CRC32C, PASSWORD);
                    System.out.println("opened " + ledger.getId());
                }
                case "load" -> {
                    LedgerLoad load = new LedgerLoad(ledger, Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                    System.out.println(load.append(Double.parseDouble(words[3])));
                }
                case "close" -> {
                    ledger.close();
                    System.out.println("closed");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static void endAfter(long seconds) {
        Thread watch = new Thread(() -> {
            try {
                Thread.sleep(1_000 * seconds);
            } catch (InterruptedException never) {
                return;
            }
            System.err.println("ended after " + seconds + " s");
            Runtime.getRuntime().halt(3);
        });
        watch.setDaemon(true);
        watch.start();
    }

    private String append(double seconds) throws Exception {
        long entries = 0;
        long start = System.nanoTime();
        long end = start + (long) (seconds * 1e9);
        for (long now = start; now < end && failure == BKException.Code.OK; entries++) {
            inFlight.acquire();
            now = System.nanoTime();
            long sent = now;
            ledger.asyncAddEntry(
                    payload.retainedDuplicate(), (code, of, entryId, context) -> confirmed(sent, code), null);
        }
        inFlight.acquire(window);
        double took = (System.nanoTime() - start) / 1e9;
        payload.release();
        if (failure != BKException.Code.OK) {
            throw BKException.create(failure);
        }
        return "done " + entries + " " + took + " " + quantiles(entries, 0.5, 0.95, 0.99);
    }

    private void confirmed(long sent, int code) {
        if (code != BKException.Code.OK) {
            failure = code;
        }
        long us = (System.nanoTime() - sent) / 1_000;
        latencies[(int) Math.min(us / BUCKET_US, BUCKETS - 1)]++;
        inFlight.release();
    }

    /** Microseconds that so large a share of the entries did not exceed, for each share. */
    private String quantiles(long entries, double... shares) {
        StringBuilder found = new StringBuilder();
        for (double share : Arrays.stream(shares).sorted().toArray()) {
            long seen = 0;
            int bucket = -1;
            while (bucket + 1 < BUCKETS && seen < share * entries) {
                seen += latencies[++bucket];
            }
            found.append(found.isEmpty() ? "" : " ").append((bucket + 1) * BUCKET_US);
        }
        return found.toString();
    }
}

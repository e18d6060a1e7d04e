import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;

/**
 * A bank whose balances are messages: SERVICE_URL TOPIC_PREFIX HISTORY_FILE SEED WORKERS ACCOUNTS.
 *
 * <p>Runs until a line "stop" or the end of the input; a line "quiet" says that the last fault is over. Each account
 * is in one message that is not acknowledged; a transfer replaces some by as many new ones in one transaction.
 */
public final class BankProgram {
    static final int DRAIN_SECONDS_MAX = 60;
    private static final int OPENING = 1_000;
    private static final int ORDERED_WORKERS = 2;

    final String serviceUrl;
    final Journal journal;
    private volatile boolean stopping;

    private BankProgram(String serviceUrl, Path history) throws Exception {
        this.serviceUrl = serviceUrl;
        this.journal = new Journal(history);
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        BankProgram bank = new BankProgram(arguments[0], Path.of(arguments[2]));
        long seed = Long.parseLong(arguments[3]);
        bank.run(Branch.all(arguments[1]), seed, Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]));
        System.exit(0); // clients may have left threads
    }

    boolean stopping() {
        return stopping;
    }

    static synchronized void say(String text) {
        System.out.println(text.replaceAll("\\s+", " "));
        System.out.flush();
    }

    static PulsarClient client(String serviceUrl) throws PulsarClientException {
        return PulsarClient.builder()
                .serviceUrl(serviceUrl)
                .enableTransaction(true)
                .ioThreads(1)
                .listenerThreads(1)
                .operationTimeout(30, TimeUnit.SECONDS)
                .build();
    }

    private void run(List<Branch> branches, long seed, int workers, int accounts) throws Exception {
        Auditor auditor = new Auditor(this);
        List<Thread> threads = new ArrayList<>();
        try (PulsarClient client = client(serviceUrl)) {
            open(branches, accounts);
            List<Branch> plain = branches.stream().filter(each -> !each.ordered()).toList();
            List<Branch> ordered = branches.stream().filter(Branch::ordered).toList();
            for (int number = 0; number < workers; number++) {
                List<Branch> from = number < ORDERED_WORKERS ? ordered : plain;
                Worker worker = new Worker("w" + number, from, branches, this, seed * 1_000 + number);
                threads.add(new Thread(worker, "worker " + number));
            }
            for (Branch branch : branches) {
                threads.add(new Thread(() -> follow(auditor, client, branch), "auditor"));
            }
            threads.forEach(each -> each.setDaemon(true));
            threads.forEach(Thread::start);
            say("open");
            obey();
            stopping = true;
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * Desk.CALL_SECONDS_MAX);
            for (Thread each : threads) {
                each.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
                if (each.isAlive()) {
                    say(each.getName() + " hangs");
                    journal.note("unfinished", "party", each.getName(), "txn", List.of(-1, -1));
                }
            }
            auditor.readLeft(client, branches, accounts);
            for (Branch branch : branches) {
                auditor.readAll(client, branch);
            }
            say("closed");
        }
    }

    /** Creates the subscriptions, one of them to keep every message until the end, and then every account in one of the branches. */
    private void open(List<Branch> branches, int accounts) throws Exception {
        try (Desk desk = new Desk("opening", serviceUrl, journal, new Random(0))) {
            for (Branch branch : branches) {
                desk.consumer(branch).close();
                desk.keep(branch);
            }
            List<java.util.concurrent.CompletableFuture<?>> sent = new ArrayList<>();
            for (int account = 0; account < accounts; account++) {
                Branch branch = branches.get(account % branches.size());
                Balance balance = new Balance(desk.nextName(account), account, OPENING);
                sent.add(desk.send(null, branch, balance, List.of(), 0));
            }
            for (var each : sent) {
                each.get(Desk.CALL_SECONDS_MAX, TimeUnit.SECONDS);
            }
        }
    }

    private void follow(Auditor auditor, PulsarClient client, Branch branch) {
        try {
            auditor.follow(client, branch);
        } catch (IOException failed) {
            say("the auditor of " + branch.topic() + " failed: " + failed.getMessage());
        }
    }

    private void obey() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null && !line.equals("stop")) {
            journal.note(line);
        }
    }
}

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Moves money in transactions: takes balances from a branch or two, publishes the new ones to any branches,
 * acknowledges the old ones. Some transactions are aborted, some are left to their timeout, some lose their client.
 */
final class Worker implements Runnable {
    static final int TTL_S = 10;
    static final int SHORT_TTL_S = 3;
    private static final int RECEIVE_MS = 300;
    private static final int OUTCOME_WAIT_MS = 30_000;
    private static final int HELD_MAX = 3;
    private static final double NOTES = 0.1;
    private static final double ABORTS = 0.15;
    private static final double TIMEOUTS = 0.05;
    private static final double DEATHS = 0.03;

    private final String name;
    private final List<Branch> from;
    private final List<Branch> to;
    private final BankProgram bank;
    private final Random random;
    private int lives;

    Worker(String name, List<Branch> from, List<Branch> to, BankProgram bank, long seed) {
        this.name = name;
        this.from = from;
        this.to = to;
        this.bank = bank;
        this.random = new Random(seed);
    }

    @Override
    public void run() {
        while (!bank.stopping()) {
            lives++;
            try (Desk desk = new Desk(name + "." + lives, bank.serviceUrl, bank.journal, random)) {
                live(desk);
            } catch (PulsarClientException failed) {
                BankProgram.say("client of " + name + " failed: " + failed.getMessage());
            } catch (InterruptedException interrupted) {
                return;
            }
        }
    }

    /** What a worker holds of one branch. */
    private static final class Held {
        final Branch branch;
        final Consumer<byte[]> consumer;
        final List<Message<byte[]>> messages = new ArrayList<>();

        Held(Branch branch, Consumer<byte[]> consumer) {
            this.branch = branch;
            this.consumer = consumer;
        }

        /** Takes a message, and lets go of those that came before the consumer began anew. */
        void take(Message<byte[]> message) {
            messages.removeIf(each -> branch.ordered()
                    ? each.getMessageId().compareTo(message.getMessageId()) >= 0
                    : each.getMessageId().equals(message.getMessageId()));
            messages.add(message);
        }

        void giveBack() {
            if (branch.ordered()) {
                consumer.redeliverUnacknowledgedMessages();
            } else {
                messages.forEach(consumer::negativeAcknowledge);
            }
            messages.clear();
        }
    }

    /** Transfers until the end, or until this client is lost. */
    private void live(Desk desk) throws PulsarClientException, InterruptedException {
        List<Held> all = new ArrayList<>();
        for (Branch branch : from) {
            all.add(new Held(branch, desk.consumer(branch)));
        }
        while (!bank.stopping()) {
            Collections.shuffle(all, random);
            List<Held> some = all.subList(0, Math.min(all.size(), 1 + random.nextInt(2)));
            for (Held held : some) {
                receive(desk, held);
            }
            if (random.nextDouble() < NOTES) {
                desk.send(null, pick(to), new Balance(desk.nextName(Balance.NONE), Balance.NONE, 0), List.of(), 0);
            }
            List<Held> full = some.stream().filter(each -> !each.messages.isEmpty()).toList();
            if (!full.isEmpty() && !transfer(desk, full)) {
                return;
            }
        }
    }

    private void receive(Desk desk, Held held) throws PulsarClientException {
        int wanted = 1 + random.nextInt(HELD_MAX);
        while (held.messages.size() < wanted) {
            Message<byte[]> message = desk.receive(held.branch, held.consumer, RECEIVE_MS);
            if (message == null) {
                return;
            }
            if (Balance.of(message).isNote() && !held.branch.ordered()) {
                desk.acknowledge(null, held.branch, held.consumer, List.of(message));
            } else {
                held.take(message);
            }
        }
    }

    /** One transaction; returns whether the client lives on. */
    private boolean transfer(Desk desk, List<Held> some) throws PulsarClientException, InterruptedException {
        double chance = random.nextDouble();
        boolean dies = chance < DEATHS;
        boolean expires = !dies && chance < DEATHS + TIMEOUTS;
        Transaction txn = desk.begin(expires ? SHORT_TTL_S : TTL_S);
        if (txn == null) {
            some.forEach(Held::giveBack);
            return true;
        }
        List<CompletableFuture<?>> calls = publish(desk, txn, some);
        for (Held held : some) {
            calls.add(desk.acknowledge(txn, held.branch, held.consumer, List.copyOf(held.messages)));
        }
        boolean done = allDone(txn, calls);
        if (dies) {
            return false;
        }
        if (expires && done) {
            // The coordinator aborts it, and the broker delivers the messages again.
            letGo(some);
            return true;
        }
        boolean commit = done && chance > DEATHS + TIMEOUTS + ABORTS;
        boolean known = desk.end(txn, commit);
        if (commit && known) {
            some.forEach(held -> held.messages.clear());
        } else if (commit && some.stream().anyMatch(held -> held.branch.ordered())) {
            // A cumulative acknowledgement does not say which messages it means: beginning anew before the outcome is
            // known could consume them twice.
            Thread.sleep(OUTCOME_WAIT_MS);
            return false;
        } else if (done) {
            letGo(some);
        } else {
            some.forEach(Held::giveBack);
        }
        return true;
    }

    /** Messages acknowledged in a transaction come again when it is aborted; ordered ones have to be asked for. */
    private static void letGo(List<Held> some) {
        for (Held held : some) {
            if (held.branch.ordered()) {
                held.giveBack();
            }
            held.messages.clear();
        }
    }

    private List<CompletableFuture<?>> publish(Desk desk, Transaction txn, List<Held> some) throws PulsarClientException {
        List<Balance> old = some.stream()
                .flatMap(held -> held.messages.stream())
                .map(Balance::of)
                .filter(each -> !each.isNote())
                .toList();
        List<String> inputs = old.stream().map(Balance::name).sorted().toList();
        long moved = old.size() < 2 ? 0 : random.nextInt(10);
        List<CompletableFuture<?>> calls = new ArrayList<>();
        for (int slot = 0; slot < old.size(); slot++) {
            Balance each = old.get(slot);
            long change = slot == 0 ? -moved : slot == 1 ? moved : 0;
            Balance next = new Balance(desk.nextName(each.account()), each.account(), each.amount() + change);
            calls.add(desk.send(txn, pick(to), next, inputs, slot));
        }
        return calls;
    }

    /** Whether all calls succeeded; one that is never answered is noted as what never ends. */
    private boolean allDone(Transaction txn, List<CompletableFuture<?>> calls) throws InterruptedException {
        try {
            CompletableFuture.allOf(calls.toArray(CompletableFuture[]::new)).get(Desk.CALL_SECONDS_MAX, TimeUnit.SECONDS);
            return true;
        } catch (ExecutionException failed) {
            return false;
        } catch (TimeoutException late) {
            bank.journal.note("unfinished", "party", "a call of " + name, "txn", Journal.of(txn.getTxnID()));
            return false;
        }
    }

    private Branch pick(List<Branch> branches) {
        return branches.get(random.nextInt(branches.size()));
    }
}

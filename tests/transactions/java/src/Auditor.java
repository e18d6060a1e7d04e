import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;

/** Reads branches beside the workers, and in the end everything that was committed and everything that is left. */
final class Auditor {
    private static final int IDLE_MS = 1_500;

    private final BankProgram bank;

    Auditor(BankProgram bank) {
        this.bank = bank;
    }

    /** Follows one branch from its first message until the workers end. */
    void follow(PulsarClient client, Branch branch) throws IOException {
        try (Reader<byte[]> reader = reader(client, branch)) {
            while (!bank.stopping()) {
                Message<byte[]> message = reader.readNext(200, TimeUnit.MILLISECONDS);
                if (message != null) {
                    bank.journal.note(
                            "delivery",
                            "reader", "auditor of " + branch.topic(),
                            "topic", branch.topic(),
                            "message", Balance.of(message).name(),
                            "position", Journal.of(message.getMessageId()),
                            "path", "reader");
                }
            }
        }
    }

    /** Notes every committed message of a branch. */
    void readAll(PulsarClient client, Branch branch) throws IOException {
        List<Object> found = new ArrayList<>();
        try (Reader<byte[]> reader = reader(client, branch)) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(BankProgram.DRAIN_SECONDS_MAX, TimeUnit.SECONDS);
                if (message == null) {
                    bank.journal.note("unfinished", "party", "reader of " + branch.topic(), "txn", List.of(-1, -1));
                    BankProgram.say("a message of " + branch.topic() + " is announced and does not come");
                    break;
                }
                found.add(List.of(Journal.of(message.getMessageId()), Balance.of(message).name()));
            }
        }
        bank.journal.note("content", "topic", branch.topic(), "messages", found);
    }

    /** Notes what is left in each branch; ends once every account was seen, or no message comes any more. */
    void readLeft(PulsarClient client, List<Branch> branches, int accounts) throws PulsarClientException {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        List<Set<String>> left = new ArrayList<>();
        for (Branch branch : branches) {
            consumers.add(branch.consumer(client, "auditor"));
            left.add(new HashSet<>());
        }
        Set<Integer> seen = new HashSet<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(BankProgram.DRAIN_SECONDS_MAX);
        boolean quiet = false;
        while (!(quiet && seen.size() >= accounts) && System.nanoTime() < deadline) {
            quiet = true;
            for (int at = 0; at < branches.size(); at++) {
                Message<byte[]> message;
                while ((message = consumers.get(at).receive(IDLE_MS, TimeUnit.MILLISECONDS)) != null) {
                    quiet = false;
                    Balance balance = Balance.of(message);
                    left.get(at).add(balance.name());
                    if (!balance.isNote()) {
                        seen.add(balance.account());
                    }
                }
            }
        }
        BankProgram.say(seen.size() + " of " + accounts + " accounts are left");
        for (int at = 0; at < branches.size(); at++) {
            bank.journal.note(
                    "left",
                    "topic", branches.get(at).topic(),
                    "subscription", Branch.SUBSCRIPTION,
                    "messages", List.copyOf(left.get(at)));
            consumers.get(at).close();
        }
    }

    private Reader<byte[]> reader(PulsarClient client, Branch branch) throws PulsarClientException {
        return client.newReader().topic(branch.topic()).startMessageId(MessageId.earliest).create();
    }
}

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TransactionCoordinatorClientException;

/** One worker's client with its producers and consumers, and the calls of a transfer, each recorded. */
final class Desk implements AutoCloseable {
    static final int CALL_SECONDS_MAX = 60;

    final String name;
    final Random random;
    private final Journal journal;
    private final PulsarClient client;
    private final Map<Branch, Producer<byte[]>> producers = new LinkedHashMap<>();
    /** Of messages without a transaction: the client puts those into the batch of a transaction, which may abort. */
    private final Map<Branch, Producer<byte[]>> plainProducers = new LinkedHashMap<>();
    private long made;

    Desk(String name, String serviceUrl, Journal journal, Random random) throws PulsarClientException {
        this.name = name;
        this.journal = journal;
        this.random = random;
        client = BankProgram.client(serviceUrl);
    }

    Consumer<byte[]> consumer(Branch branch) throws PulsarClientException {
        return branch.consumer(client, name);
    }

    /** Creates a subscription that acknowledges nothing, so that no message is deleted before the auditor reads it. */
    void keep(Branch branch) throws PulsarClientException {
        client.newConsumer()
                .topic(branch.topic())
                .subscriptionName("keeper")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()
                .close();
    }

    /** The next message of a consumer; null when none comes in time. */
    Message<byte[]> receive(Branch branch, Consumer<byte[]> consumer, int waitMs) throws PulsarClientException {
        Message<byte[]> message = consumer.receive(waitMs, TimeUnit.MILLISECONDS);
        if (message != null) {
            journal.note(
                    "delivery",
                    "reader", name,
                    "topic", branch.topic(),
                    "subscription", Branch.SUBSCRIPTION,
                    "message", Balance.of(message).name(),
                    "position", Journal.of(message.getMessageId()),
                    "path", message.getRedeliveryCount() == 0 ? "dispatch" : "redelivery");
        }
        return message;
    }

    /** A new transaction; null when none could be had. */
    Transaction begin(int ttlSeconds) throws InterruptedException {
        long call = journal.begin("new", name, "ttl_s", ttlSeconds);
        try {
            Transaction txn = client.newTransaction()
                    .withTransactionTimeout(ttlSeconds, TimeUnit.SECONDS)
                    .build()
                    .get(CALL_SECONDS_MAX, TimeUnit.SECONDS);
            journal.ok(call, "txn", Journal.of(txn.getTxnID()));
            return txn;
        } catch (ExecutionException | TimeoutException failed) {
            journal.unknown(call, cause(failed));
            return null;
        }
    }

    /** Publishes a balance, or a note without a transaction. */
    CompletableFuture<MessageId> send(Transaction txn, Branch branch, Balance balance, List<String> inputs, int slot)
            throws PulsarClientException {
        Map<Branch, Producer<byte[]>> all = txn == null ? plainProducers : producers;
        Producer<byte[]> producer = all.get(branch);
        if (producer == null) {
            producer = branch.producer(client, name + "-" + branch.topic().replaceAll(".*-", "") + "-" + made);
            all.put(branch, producer);
        }
        long call = journal.begin(
                "send", name,
                "topic", branch.topic(),
                "message", balance.name(),
                "txn", txn == null ? null : Journal.of(txn.getTxnID()),
                "inputs", inputs,
                "slot", slot,
                "value", balance.isNote() ? null : balance.amount());
        var message = txn == null ? producer.newMessage() : producer.newMessage(txn);
        CompletableFuture<MessageId> sent = message.key(Integer.toString(balance.account())).value(balance.bytes()).sendAsync();
        return sent.whenComplete((id, failed) -> {
            if (failed == null) {
                journal.ok(call, "position", Journal.of(id));
            } else {
                journal.unknown(call, cause(failed));
            }
        });
    }

    /** Acknowledges messages, cumulatively up to the last one or each; without a transaction where it is null. */
    CompletableFuture<Void> acknowledge(
            Transaction txn, Branch branch, Consumer<byte[]> consumer, List<Message<byte[]>> messages) {
        long call = journal.begin(
                "ack", name,
                "topic", branch.topic(),
                "subscription", Branch.SUBSCRIPTION,
                "messages", messages.stream().map(each -> Balance.of(each).name()).toList(),
                "txn", txn == null ? null : Journal.of(txn.getTxnID()));
        CompletableFuture<Void> done;
        if (branch.ordered()) {
            MessageId last = messages.get(messages.size() - 1).getMessageId();
            done = txn == null ? consumer.acknowledgeCumulativeAsync(last) : consumer.acknowledgeCumulativeAsync(last, txn);
        } else {
            List<CompletableFuture<Void>> each = new ArrayList<>();
            for (Message<byte[]> message : messages) {
                MessageId id = message.getMessageId();
                each.add(txn == null ? consumer.acknowledgeAsync(id) : consumer.acknowledgeAsync(id, txn));
            }
            done = CompletableFuture.allOf(each.toArray(CompletableFuture[]::new));
        }
        return done.whenComplete((nothing, failed) -> {
            if (failed == null) {
                journal.ok(call);
            } else if (cause(failed) instanceof PulsarClientException.TransactionConflictException) {
                journal.refused(call, "TransactionConflict");
            } else {
                journal.unknown(call, cause(failed));
            }
        });
    }

    /** Ends a transaction; returns whether that is known to have been done. */
    boolean end(Transaction txn, boolean commit) throws InterruptedException {
        long call = journal.begin("end", name, "txn", Journal.of(txn.getTxnID()), "commit", commit);
        try {
            (commit ? txn.commit() : txn.abort()).get(CALL_SECONDS_MAX, TimeUnit.SECONDS);
            journal.ok(call);
            return true;
        } catch (ExecutionException | TimeoutException failed) {
            Throwable cause = cause(failed);
            if (cause instanceof TransactionCoordinatorClientException.InvalidTxnStatusException && fromServer(cause)) {
                journal.refused(call, "InvalidTxnStatus");
            } else if (cause instanceof TransactionCoordinatorClientException.TransactionNotFoundException) {
                journal.refused(call, "TransactionNotFound");
            } else {
                journal.unknown(call, cause);
            }
            return false;
        }
    }

    /** Whether the coordinator said so: the client refuses by itself where the state of its object does not fit. */
    private static boolean fromServer(Throwable error) {
        return error.getMessage() == null || !error.getMessage().contains("unexpected state");
    }

    String nextName(int account) {
        made++;
        return account + "@" + name + "-" + made;
    }

    static Throwable cause(Throwable failed) {
        Throwable cause = failed;
        while (cause.getCause() != null && (cause instanceof ExecutionException || cause instanceof java.util.concurrent.CompletionException)) {
            cause = cause.getCause();
        }
        return cause;
    }

    @Override
    public void close() throws PulsarClientException {
        client.shutdown();
    }
}

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Transactions;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.common.policies.data.TransactionCoordinatorInfo;
import org.apache.pulsar.common.policies.data.TransactionMetadata;

/** Coordinators, a transaction that publishes and acknowledges, and its end by an operator. */
final class TransactionChecks {
    private static final String SUBSCRIPTION = "in-transactions";
    private static final int UNAVAILABLE = 503;
    private static final int NOT_ACCEPTABLE = 406;
    private static final long MINUTES = 5;

    private TransactionChecks() {}

    static void run(Checks checks, PulsarAdmin admin, String topic) throws Exception {
        Transactions transactions = admin.transactions();
        if (areOff(transactions)) {
            off(checks, transactions, topic);
            return;
        }
        coordinators(checks, transactions);
        admin.topics().createNonPartitionedTopic(topic);
        String url = admin.lookups().lookupTopic(topic);
        try (PulsarClient client = Credentials.client(url).enableTransaction(true).build();
                Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName(SUBSCRIPTION)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            producer.send(new byte[] {1});
            MessageIdAdv before = (MessageIdAdv) consumer.receive(10, TimeUnit.SECONDS).getMessageId();
            Transaction transaction = client.newTransaction()
                    .withTransactionTimeout(MINUTES, TimeUnit.MINUTES).build().get();
            MessageIdAdv inside = (MessageIdAdv) producer.newMessage(transaction).value(new byte[] {2}).send();
            consumer.acknowledgeAsync(before, transaction).get();
            open(checks, transactions, topic, transaction.getTxnID(), inside);
            pending(checks, transactions, topic, transaction.getTxnID(), before);
            end(checks, transactions, topic, transaction);
            connected(checks, transactions);
        }
    }

    private static boolean areOff(Transactions transactions) throws PulsarAdminException {
        try {
            transactions.listTransactionCoordinators();
            return false;
        } catch (PulsarAdminException refusal) {
            if (refusal.getStatusCode() != UNAVAILABLE) {
                throw refusal;
            }
            return true;
        }
    }

    private static void off(Checks checks, Transactions transactions, String topic) {
        TxnID id = new TxnID(0, 0);
        checks.refused("statistics of coordinators", UNAVAILABLE, transactions::getCoordinatorStats);
        checks.refused("a transaction", UNAVAILABLE, () -> transactions.getTransactionMetadata(id));
        checks.refused("slow transactions", UNAVAILABLE,
                () -> transactions.getSlowTransactions(1, TimeUnit.SECONDS));
        checks.refused("abort a transaction", UNAVAILABLE, () -> transactions.abortTransaction(id));
        checks.refused("more coordinators", UNAVAILABLE, () -> transactions.scaleTransactionCoordinators(99));
    }

    private static void coordinators(Checks checks, Transactions transactions) throws Exception {
        List<TransactionCoordinatorInfo> found = transactions.listTransactionCoordinators();
        checks.check("coordinators and their brokers", () -> {
            Checks.that(!found.isEmpty(), "there are none");
            for (int id = 0; id < found.size(); id++) {
                Checks.same((long) id, found.get(id).getId());
                Checks.that(found.get(id).getBrokerServiceUrl().startsWith("pulsar"), "no URL of a broker");
            }
        });
        checks.refused("a missing coordinator", PulsarAdminException.NotFoundException.class,
                () -> transactions.getCoordinatorStatsById(9_999));
        checks.refused("a missing transaction", PulsarAdminException.NotFoundException.class,
                () -> transactions.getTransactionMetadata(new TxnID(0, Long.MAX_VALUE)));
        checks.refused("fewer coordinators", NOT_ACCEPTABLE, () -> transactions.scaleTransactionCoordinators(1));
    }

    /** Once a client has connected to all of them: Apache Pulsar knows nothing of others. */
    private static void connected(Checks checks, Transactions transactions) throws Exception {
        int count = transactions.listTransactionCoordinators().size();
        checks.check("statistics of each coordinator", () -> {
            Checks.same(count, transactions.getCoordinatorStats().size());
            Checks.same("Ready", transactions.getCoordinatorStatsById(0).state);
        });
        checks.check("the log of a coordinator", () -> Checks.that(
                !transactions.getCoordinatorInternalStats(0, true).transactionLogStats.managedLedgerName.isEmpty(),
                "it has no name"));
        checks.check("one more coordinator", () -> {
            transactions.scaleTransactionCoordinators(count + 1);
            checks.seen(count + 1, () -> transactions.listTransactionCoordinators().size());
        });
    }

    private static void open(
            Checks checks, Transactions transactions, String topic, TxnID id, MessageIdAdv first) {
        String position = first.getLedgerId() + ":" + first.getEntryId();
        checks.check("an open transaction", () -> {
            TransactionMetadata found = transactions.getTransactionMetadata(id);
            Checks.same(id.toString(), found.txnId);
            Checks.same("OPEN", found.status);
            Checks.same(TimeUnit.MINUTES.toMillis(MINUTES), found.timeoutAt);
            Checks.same(position, found.producedPartitions.get(topic).startPosition);
            Checks.same(java.util.Set.of(SUBSCRIPTION), found.ackedPartitions.get(topic).keySet());
        });
        checks.check("it is counted by its coordinator", () -> Checks.that(
                transactions.getCoordinatorStatsById((int) id.getMostSigBits()).ongoingTxnSize > 0, "it is not"));
        checks.check("slow transactions have a longer timeout", () -> {
            Map<String, TransactionMetadata> longer = transactions.getSlowTransactions(1, TimeUnit.MINUTES);
            Checks.same("OPEN", longer.get(id.toString()).status);
            int coordinator = (int) id.getMostSigBits();
            Checks.that(transactions.getSlowTransactionsByCoordinatorId(coordinator, 1, TimeUnit.MINUTES)
                    .containsKey(id.toString()), "not of its coordinator");
            Checks.same(Map.of(), transactions.getSlowTransactions(1, TimeUnit.HOURS));
        });
        checks.check("an open transaction in its topic", () -> {
            Checks.same(position, transactions.getTransactionInBufferStats(id, topic).startPosition);
            Checks.same(false, transactions.getTransactionInBufferStats(id, topic).aborted);
        });
        checks.check("transactions of a topic", () -> {
            var found = transactions.getTransactionBufferStats(topic, true);
            Checks.same("Ready", found.state);
            Checks.same(1L, found.ongoingTxnSize);
            Checks.same(first.getLedgerId() + ":" + (first.getEntryId() - 1), found.maxReadPosition);
            Checks.that(found.lowWaterMarks != null, "no watermarks");
        });
        checks.check("the records of a topic's transactions", () -> Checks.same("Single",
                transactions.getTransactionBufferInternalStats(topic, true).snapshotType));
        checks.refused("transactions of a missing topic", PulsarAdminException.NotFoundException.class,
                () -> transactions.getTransactionBufferStats(topic + "-missing"));
    }

    private static void pending(
            Checks checks, Transactions transactions, String topic, TxnID id, MessageIdAdv acknowledged) {
        checks.check("pending acknowledgements of a subscription", () -> {
            Checks.same("Ready", transactions.getPendingAckStats(topic, SUBSCRIPTION, true).state);
            Checks.same(1L, transactions.getPendingAckStats(topic, SUBSCRIPTION).ongoingTxnSize);
        });
        checks.check("individual ones have no cumulative position", () -> Checks.same(null,
                transactions.getTransactionInPendingAckStats(id, topic, SUBSCRIPTION).cumulativeAckPosition));
        checks.check("the records of pending acknowledgements", () -> Checks.that(!transactions
                .getPendingAckInternalStats(topic, SUBSCRIPTION, true)
                .pendingAckLogStats.managedLedgerName.isEmpty(), "they have no name"));
        checks.check("positions that are acknowledged in a transaction", () -> {
            long ledger = acknowledged.getLedgerId();
            long entry = acknowledged.getEntryId();
            Checks.same("PendingAck", transactions
                    .getPositionStatsInPendingAck(topic, SUBSCRIPTION, ledger, entry, null).state.name());
            Checks.same("NotInPendingAck", transactions
                    .getPositionStatsInPendingAck(topic, SUBSCRIPTION, ledger, entry + 1, null).state.name());
        });
    }

    private static void end(Checks checks, Transactions transactions, String topic, Transaction transaction) {
        TxnID id = transaction.getTxnID();
        checks.check("abort a transaction", () -> {
            transactions.abortTransaction(id);
            Checks.same(0L, transactions.getTransactionBufferStats(topic).ongoingTxnSize);
            Checks.same(true, transactions.getTransactionInBufferStats(id, topic).aborted);
            Checks.same(0L, transactions.getPendingAckStats(topic, SUBSCRIPTION).ongoingTxnSize);
            Checks.same(Map.of(), transactions.getSlowTransactions(1, TimeUnit.SECONDS));
        });
        checks.check("an aborted transaction is not committed", () -> {
            try {
                transaction.commit().get();
                throw new AssertionError("it is");
            } catch (ExecutionException refusal) {
                Checks.that(refusal.getCause().getMessage() != null, "no reason is given");
            }
        });
    }
}

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TransactionCoordinatorClientException;

/** Scenarios of transactions. */
final class Transactions {
    private static final int TTL_S = 300;
    private static final int SHORT_TTL_MS = 2_000;
    private static final int ATTEMPTS = 5;

    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("txn-commit", Transactions::commit);
        SCENARIOS.put("txn-abort", Transactions::abort);
        SCENARIOS.put("txn-batches", Transactions::batches);
        SCENARIOS.put("txn-partitioned", Transactions::partitioned);
        SCENARIOS.put("txn-order", Transactions::order);
        SCENARIOS.put("txn-ack", Transactions::ack);
        SCENARIOS.put("txn-ack-cumulative", Transactions::ackCumulative);
        SCENARIOS.put("txn-ack-conflict", Transactions::ackConflict);
        SCENARIOS.put("txn-transform", Transactions::transform);
        SCENARIOS.put("txn-timeout", Transactions::timeout);
        SCENARIOS.put("txn-reader", Transactions::reader);
        SCENARIOS.put("txn-moved", Transactions::moved);
        SCENARIOS.put("txn-killed", Transactions::killed);
    }

    private Transactions() {}

    private static Transaction begin(PulsarClient client) throws Exception {
        return client.newTransaction().withTransactionTimeout(TTL_S, TimeUnit.SECONDS).build().get();
    }

    private static ProducerBuilder<byte[]> producer(PulsarClient client, String topic) {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).enableBatching(false);
    }

    private static ConsumerBuilder<byte[]> consumer(PulsarClient client, String topic) {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName("sub")
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    /** Sends the texts PREFIX0, PREFIX1, ... in the transaction, numbered from 0 to before `count`. */
    private static void send(Producer<byte[]> producer, Transaction transaction, String prefix, int count) {
        for (int number = 0; number < count; number++) {
            producer.newMessage(transaction).value(Context.bytes(prefix + number)).sendAsync();
        }
    }

    private static void commit(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        Transaction transaction = begin(client);
        send(producer, transaction, "m", 10);
        producer.flush();
        Context.expectNothing(consumer);
        transaction.commit().get();
        Check.equal(Context.texts(Context.take(consumer, 10)), Context.numbered("m", 0, 10), "committed messages");
        Check.equal(transaction.getState(), Transaction.State.COMMITTED, "state");
        context.awaitBacklog("sub", 0);
    }

    private static void abort(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        Transaction transaction = begin(client);
        send(producer, transaction, "m", 10);
        transaction.abort().get();
        producer.send(Context.bytes("after"));
        Check.equal(Context.texts(Context.take(consumer, 1)), List.of("after"), "message after an abort");
        Context.expectNothing(consumer);
        consumer.seek(MessageId.earliest);
        Check.equal(Context.texts(Context.take(consumer, 1)), List.of("after"), "message after a seek");
        Context.expectNothing(consumer);
        context.awaitBacklog("sub", 0);
    }

    private static void batches(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic)
                .enableBatching(true)
                .batchingMaxMessages(10)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                .create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        Transaction first = begin(client);
        Transaction second = begin(client);
        send(producer, first, "a", 20);
        send(producer, second, "b", 20);
        producer.flush();
        first.abort().get();
        second.commit().get();
        Check.equal(Context.texts(Context.take(consumer, 20)), Context.numbered("b", 0, 20), "messages in batches");
        Context.expectNothing(consumer);
    }

    private static void partitioned(Context context) throws Exception {
        context.ask("partition", context.topic, "3");
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        Transaction aborted = begin(client);
        Transaction committed = begin(client);
        send(producer, aborted, "a", 9);
        send(producer, committed, "c", 9);
        aborted.abort().get();
        committed.commit().get();
        List<String> texts = new ArrayList<>(Context.texts(Context.take(consumer, 9)));
        texts.sort(null);
        Check.equal(texts, Context.numbered("c", 0, 9), "messages of three partitions");
        Context.expectNothing(consumer);
    }

    /** An open transaction holds back what was sent after it; order is that of sending. */
    private static void order(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        producer.send(Context.bytes("before"));
        Transaction first = begin(client);
        Transaction second = begin(client);
        producer.newMessage(first).value(Context.bytes("first")).send();
        producer.newMessage(second).value(Context.bytes("second")).send();
        producer.send(Context.bytes("plain"));
        Check.equal(Context.texts(Context.take(consumer, 1)), List.of("before"), "message before the transactions");
        second.commit().get();
        Context.expectNothing(consumer);
        first.commit().get();
        Check.equal(
                Context.texts(Context.take(consumer, 3)), List.of("first", "second", "plain"), "messages in order");
    }

    private static void ack(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        ConsumerBuilder<byte[]> builder = consumer(client, context.topic).subscriptionType(SubscriptionType.Shared);
        Consumer<byte[]> consumer = builder.clone().subscribe();
        for (String text : Context.numbered("m", 0, 4)) {
            producer.send(Context.bytes(text));
        }
        List<Message<byte[]>> messages = Context.receive(consumer, 4);
        Transaction committed = begin(client);
        Transaction aborted = begin(client);
        consumer.acknowledgeAsync(messages.get(0).getMessageId(), committed).get();
        consumer.acknowledgeAsync(messages.get(1).getMessageId(), committed).get();
        consumer.acknowledgeAsync(messages.get(2).getMessageId(), aborted).get();
        consumer.redeliverUnacknowledgedMessages();
        Check.equal(Context.texts(Context.receive(consumer, 1)), List.of("m3"), "message that is not acknowledged");
        Context.expectNothing(consumer);
        committed.commit().get();
        aborted.abort().get();
        consumer.close();
        Consumer<byte[]> next = builder.clone().subscribe();
        List<String> texts = new ArrayList<>(Context.texts(Context.take(next, 2)));
        texts.sort(null);
        Check.equal(texts, List.of("m2", "m3"), "messages after the ends");
        Context.expectNothing(next);
        context.awaitBacklog("sub", 0);
    }

    private static void ackCumulative(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        for (String text : Context.numbered("m", 0, 10)) {
            producer.send(Context.bytes(text));
        }
        List<Message<byte[]>> messages = Context.receive(consumer, 10);
        Transaction aborted = begin(client);
        consumer.acknowledgeCumulativeAsync(messages.get(7).getMessageId(), aborted).get();
        aborted.abort().get();
        Transaction committed = begin(client);
        consumer.acknowledgeCumulativeAsync(messages.get(4).getMessageId(), committed).get();
        committed.commit().get();
        context.awaitBacklog("sub", 5);
        consumer.close();
        Consumer<byte[]> next = consumer(client, context.topic).subscribe();
        Check.equal(Context.texts(Context.take(next, 5)), Context.numbered("m", 5, 10), "messages of the next consumer");
        Context.expectNothing(next);
    }

    private static void ackConflict(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer =
                consumer(client, context.topic).subscriptionType(SubscriptionType.Shared).subscribe();
        producer.send(Context.bytes("m0"));
        MessageId id = Context.receive(consumer, 1).get(0).getMessageId();
        Transaction first = begin(client);
        Transaction second = begin(client);
        consumer.acknowledgeAsync(id, first).get();
        Check.refused(
                PulsarClientException.TransactionConflictException.class,
                () -> consumer.acknowledgeAsync(id, second).get(),
                "acknowledgement of a message that another transaction acknowledged");
        first.commit().get();
        second.abort().get();
        context.awaitBacklog("sub", 0);
    }

    /** Consume, transform, publish: of 10 rounds every third is aborted at first. */
    private static void transform(Context context) throws Exception {
        String output = context.topic + "-out";
        PulsarClient client = context.transactional();
        Producer<byte[]> inputs = producer(client, context.topic).create();
        Producer<byte[]> outputs = producer(client, output).create();
        Consumer<byte[]> consumer =
                consumer(client, context.topic).subscriptionType(SubscriptionType.Shared).subscribe();
        Consumer<byte[]> result = consumer(client, output).subscribe();
        for (String text : Context.numbered("m", 0, 10)) {
            inputs.send(Context.bytes(text));
        }
        int aborts = 0;
        for (int round = 0, done = 0; done < 10; round++) {
            Message<byte[]> message = Context.receive(consumer, 1).get(0);
            Transaction transaction = begin(client);
            outputs.newMessage(transaction).value(Context.bytes("out-" + Context.text(message))).sendAsync();
            consumer.acknowledgeAsync(message.getMessageId(), transaction);
            if (round % 3 == 0 && aborts < 3) {
                aborts++;
                transaction.abort().get();
                consumer.redeliverUnacknowledgedMessages();
            } else {
                transaction.commit().get();
                done++;
            }
        }
        List<String> texts = new ArrayList<>(Context.texts(Context.take(result, 10)));
        texts.sort(null);
        Check.equal(texts, Context.numbered("out-m", 0, 10), "outputs");
        Context.expectNothing(result);
        context.awaitBacklog("sub", 0);
    }

    private static void timeout(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        Consumer<byte[]> consumer = consumer(client, context.topic).subscribe();
        Transaction transaction =
                client.newTransaction().withTransactionTimeout(SHORT_TTL_MS, TimeUnit.MILLISECONDS).build().get();
        producer.newMessage(transaction).value(Context.bytes("late")).send();
        producer.send(Context.bytes("plain"));
        Context.expectNothing(consumer);
        Check.equal(Context.texts(Context.take(consumer, 1)), List.of("plain"), "message behind the timeout");
        Context.expectNothing(consumer);
        Check.refused(
                TransactionCoordinatorClientException.class,
                () -> transaction.commit().get(),
                "commit of a transaction that timed out");
    }

    /** A reader stops at an open transaction, and does not wait for aborted messages. */
    private static void reader(Context context) throws Exception {
        PulsarClient client = context.transactional();
        Producer<byte[]> producer = producer(client, context.topic).create();
        producer.send(Context.bytes("m0"));
        Transaction open = begin(client);
        producer.newMessage(open).value(Context.bytes("m1")).send();
        try (Reader<byte[]> reader =
                client.newReader().topic(context.topic).startMessageId(MessageId.earliest).create()) {
            Check.that(reader.hasMessageAvailable(), "no message is available before an open transaction");
            Check.equal(Context.text(reader.readNext()), "m0", "message before the transaction");
            Check.that(!reader.hasMessageAvailable(), "a message of an open transaction is available");
            open.abort().get();
            Check.that(!reader.hasMessageAvailable(), "a message of an aborted transaction is available");
            Transaction second = begin(client);
            producer.newMessage(second).value(Context.bytes("m2")).send();
            second.commit().get();
            Check.that(reader.hasMessageAvailable(), "no committed message is available");
            Check.equal(Context.text(reader.readNext()), "m2", "committed message");
            Check.that(!reader.hasMessageAvailable(), "a message is available at the end");
        }
    }

    private static void moved(Context context) throws Exception {
        disrupted(context, "move");
    }

    private static void killed(Context context) throws Exception {
        disrupted(context, "kill");
    }

    private static void disrupted(Context context, String verb) throws Exception {
        for (int attempt = 1; !disrupted(context, verb, context.topic + "-" + attempt); attempt++) {
            Check.that(attempt < ATTEMPTS, "acknowledgements failed on " + attempt + " topics");
        }
    }

    /**
     * Messages and acknowledgements of transactions that were open during a disruption end as they should.
     * False: another program moved the topic meanwhile, so that an acknowledgement failed, at once. Its transaction
     * cannot be committed any more.
     */
    private static boolean disrupted(Context context, String verb, String topic) throws Exception {
        String output = topic + "-out";
        PulsarClient client = context.transactional();
        Producer<byte[]> inputs = producer(client, topic).create();
        Producer<byte[]> outputs = producer(client, output).create();
        Consumer<byte[]> consumer =
                consumer(client, topic).subscriptionType(SubscriptionType.Shared).subscribe();
        // Before the messages: those of a ledger that ends, as with a move, go if no subscription keeps them.
        consumer(client, output).subscribe().close();
        inputs.send(Context.bytes("m0"));
        inputs.send(Context.bytes("m1"));
        List<Message<byte[]>> messages = Context.receive(consumer, 2);
        Transaction committed = begin(client);
        Transaction aborted = begin(client);
        outputs.newMessage(committed).value(Context.bytes("committed")).send();
        outputs.newMessage(aborted).value(Context.bytes("aborted")).send();
        try {
            consumer.acknowledgeAsync(messages.get(0).getMessageId(), committed).get();
            consumer.acknowledgeAsync(messages.get(1).getMessageId(), aborted).get();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof PulsarClientException.TimeoutException
                    || !(error.getCause() instanceof PulsarClientException)) {
                throw error;
            }
            return false;
        }
        context.ask(verb, output);
        if (verb.equals("move")) {
            context.ask(verb, topic);
        }
        committed.commit().get();
        aborted.abort().get();
        outputs.send(Context.bytes("after"));
        Consumer<byte[]> result = consumer(client, output).subscribe();
        Set<String> found = new LinkedHashSet<>();
        while (found.size() < 2) { // Other programs move the topic, too: then messages may repeat.
            found.addAll(Context.texts(Context.take(result, 1)));
        }
        Check.equal(List.copyOf(found), List.of("committed", "after"), "outputs");
        consumer.redeliverUnacknowledgedMessages();
        Check.recovered(
                () -> {
                    Message<byte[]> message = consumer.receive(1, TimeUnit.SECONDS);
                    if (message == null) {
                        return false;
                    }
                    Check.equal(Context.text(message), "m1", "input of the aborted transaction");
                    consumer.acknowledge(message);
                    return true;
                },
                "the input of the aborted transaction did not come again");
        context.awaitBacklog(topic, "sub", 0);
        return true;
    }
}

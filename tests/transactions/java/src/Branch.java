import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** A topic that holds balances, and the way in which its subscription is consumed. */
record Branch(String topic, SubscriptionType type, boolean batched) {
    static final String SUBSCRIPTION = "bank";

    /** One of each kind: Failover is acknowledged cumulatively, one Shared branch has batches. */
    static List<Branch> all(String prefix) {
        return List.of(
                new Branch(prefix + "-shared", SubscriptionType.Shared, false),
                new Branch(prefix + "-batched", SubscriptionType.Shared, true),
                new Branch(prefix + "-keyed", SubscriptionType.Key_Shared, false),
                new Branch(prefix + "-ordered", SubscriptionType.Failover, false));
    }

    boolean ordered() {
        return type == SubscriptionType.Failover;
    }

    Consumer<byte[]> consumer(PulsarClient client, String name) throws PulsarClientException {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName(SUBSCRIPTION)
                .subscriptionType(type)
                .consumerName(name)
                .receiverQueueSize(10)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
                .enableBatchIndexAcknowledgment(true)
                .isAckReceiptEnabled(true)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    Producer<byte[]> producer(PulsarClient client, String name) throws PulsarClientException {
        return client.newProducer()
                .topic(topic)
                .producerName(name)
                .sendTimeout(0, TimeUnit.SECONDS) // transactions ask for it
                .enableBatching(batched)
                .batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS)
                .create();
    }
}

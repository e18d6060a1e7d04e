import java.util.List;
import java.util.Set;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.TopicPolicies;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.*;

/** Every policy of a topic: set, seen, and removed. */
final class TopicPolicyChecks {
    private TopicPolicyChecks() {}

    static void run(Checks checks, TopicPolicies policies, Topics topics, String topic, String cluster) {
        rates(checks, policies, topic);
        limits(checks, policies, topic);
        storage(checks, policies, topic);
        rest(checks, policies, topics, topic, cluster);
    }

    private static void rates(Checks checks, TopicPolicies policies, String topic) {
        DispatchRate rate = DispatchRate.builder()
                .dispatchThrottlingRateInMsg(100).dispatchThrottlingRateInByte(2_000).ratePeriodInSecond(2).build();
        checks.policy("topic publish rate", new PublishRate(10, 1_000),
                value -> policies.setPublishRate(topic, value), () -> policies.getPublishRate(topic),
                () -> policies.removePublishRate(topic));
        checks.policy("topic dispatch rate", rate,
                value -> policies.setDispatchRate(topic, value), () -> policies.getDispatchRate(topic),
                () -> policies.removeDispatchRate(topic));
        checks.policy("topic subscription dispatch rate", rate,
                value -> policies.setSubscriptionDispatchRate(topic, value),
                () -> policies.getSubscriptionDispatchRate(topic),
                () -> policies.removeSubscriptionDispatchRate(topic));
        checks.policy("topic dispatch rate of one subscription", rate,
                value -> policies.setSubscriptionDispatchRate(topic, "one", value),
                () -> policies.getSubscriptionDispatchRate(topic, "one"),
                () -> policies.removeSubscriptionDispatchRate(topic, "one"));
        checks.policy("topic replicator dispatch rate", rate,
                value -> policies.setReplicatorDispatchRate(topic, value),
                () -> policies.getReplicatorDispatchRate(topic),
                () -> policies.removeReplicatorDispatchRate(topic));
        checks.policy("topic subscribe rate", new SubscribeRate(5, 10),
                value -> policies.setSubscribeRate(topic, value), () -> policies.getSubscribeRate(topic),
                () -> policies.removeSubscribeRate(topic));
    }

    private static void limits(Checks checks, TopicPolicies policies, String topic) {
        checks.policy("topic max producers", 3, value -> policies.setMaxProducers(topic, value),
                () -> policies.getMaxProducers(topic), () -> policies.removeMaxProducers(topic));
        checks.policy("topic max consumers", 4, value -> policies.setMaxConsumers(topic, value),
                () -> policies.getMaxConsumers(topic), () -> policies.removeMaxConsumers(topic));
        checks.policy("topic max consumers per subscription", 5,
                value -> policies.setMaxConsumersPerSubscription(topic, value),
                () -> policies.getMaxConsumersPerSubscription(topic),
                () -> policies.removeMaxConsumersPerSubscription(topic));
        checks.policy("topic max subscriptions", 6,
                value -> policies.setMaxSubscriptionsPerTopic(topic, value),
                () -> policies.getMaxSubscriptionsPerTopic(topic),
                () -> policies.removeMaxSubscriptionsPerTopic(topic));
        checks.policy("topic max message size", 7_000, value -> policies.setMaxMessageSize(topic, value),
                () -> policies.getMaxMessageSize(topic), () -> policies.removeMaxMessageSize(topic));
        checks.policy("topic max unacknowledged messages of a consumer", 800,
                value -> policies.setMaxUnackedMessagesOnConsumer(topic, value),
                () -> policies.getMaxUnackedMessagesOnConsumer(topic),
                () -> policies.removeMaxUnackedMessagesOnConsumer(topic));
        checks.policy("topic max unacknowledged messages of a subscription", 900,
                value -> policies.setMaxUnackedMessagesOnSubscription(topic, value),
                () -> policies.getMaxUnackedMessagesOnSubscription(topic),
                () -> policies.removeMaxUnackedMessagesOnSubscription(topic));
    }

    private static void storage(Checks checks, TopicPolicies policies, String topic) {
        checks.policy("topic message TTL", 3_600, value -> policies.setMessageTTL(topic, value),
                () -> policies.getMessageTTL(topic), () -> policies.removeMessageTTL(topic));
        checks.policy("topic retention", new RetentionPolicies(60, 100),
                value -> policies.setRetention(topic, value), () -> policies.getRetention(topic),
                () -> policies.removeRetention(topic));
        checks.policy("topic persistence", new PersistencePolicies(1, 1, 1, 5.0),
                value -> policies.setPersistence(topic, value), () -> policies.getPersistence(topic),
                () -> policies.removePersistence(topic));
        for (BacklogQuota.BacklogQuotaType type : BacklogQuota.BacklogQuotaType.values()) {
            BacklogQuota quota = BacklogQuota.builder().limitSize(1 << 30).limitTime(7_200)
                    .retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build();
            checks.policy("topic backlog quota of " + type, quota,
                    value -> policies.setBacklogQuota(topic, value, type),
                    () -> policies.getBacklogQuotaMap(topic).get(type),
                    () -> policies.removeBacklogQuota(topic, type));
        }
        checks.policy("topic compaction threshold", 1_000_000L,
                value -> policies.setCompactionThreshold(topic, value),
                () -> policies.getCompactionThreshold(topic), () -> policies.removeCompactionThreshold(topic));
        checks.policy("topic delayed delivery",
                DelayedDeliveryPolicies.builder().active(true).tickTime(2_000).maxDeliveryDelayInMillis(9_000).build(),
                value -> policies.setDelayedDeliveryPolicy(topic, value),
                () -> policies.getDelayedDeliveryPolicy(topic), () -> policies.removeDelayedDeliveryPolicy(topic));
        checks.policy("topic inactivity",
                new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_no_subscriptions, 90, true),
                value -> policies.setInactiveTopicPolicies(topic, value),
                () -> policies.getInactiveTopicPolicies(topic), () -> policies.removeInactiveTopicPolicies(topic));
        checks.policy("topic deduplication", true, value -> policies.setDeduplicationStatus(topic, value),
                () -> policies.getDeduplicationStatus(topic), () -> policies.removeDeduplicationStatus(topic));
        checks.policy("topic deduplication snapshot interval", 500,
                value -> policies.setDeduplicationSnapshotInterval(topic, value),
                () -> policies.getDeduplicationSnapshotInterval(topic),
                () -> policies.removeDeduplicationSnapshotInterval(topic));
    }

    private static void rest(
            Checks checks, TopicPolicies policies, Topics topics, String topic, String cluster) {
        checks.policy("topic subscription auto-creation",
                AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(false).build(),
                value -> policies.setAutoSubscriptionCreation(topic, value),
                () -> policies.getAutoSubscriptionCreation(topic, false),
                () -> policies.removeAutoSubscriptionCreation(topic));
        checks.policy("topic subscription types", Set.of(SubscriptionType.Shared, SubscriptionType.Failover),
                value -> policies.setSubscriptionTypesEnabled(topic, value),
                () -> policies.getSubscriptionTypesEnabled(topic),
                () -> policies.removeSubscriptionTypesEnabled(topic));
        checks.policy("topic schema compatibility", SchemaCompatibilityStrategy.BACKWARD,
                value -> policies.setSchemaCompatibilityStrategy(topic, value),
                () -> policies.getSchemaCompatibilityStrategy(topic, false),
                () -> policies.removeSchemaCompatibilityStrategy(topic));
        checks.setting("topic schema validation", true,
                value -> topics.setSchemaValidationEnforced(topic, value),
                () -> topics.getSchemaValidationEnforced(topic, false));
        checks.policy("topic dispatcher pause on ack state", true,
                value -> policies.setDispatcherPauseOnAckStatePersistent(topic).get(),
                () -> policies.getDispatcherPauseOnAckStatePersistent(topic, false).get(),
                () -> policies.removeDispatcherPauseOnAckStatePersistent(topic).get());
        checks.check("topic replication clusters", () -> {
            policies.setReplicationClusters(topic, List.of(cluster)).get();
            checks.seen(Set.of(cluster), () -> policies.getReplicationClusters(topic, false));
            policies.removeReplicationClusters(topic);
        });
        checks.check("what holds for a topic", () -> {
            Checks.that(policies.getRetention(topic, true) != null, "no retention holds");
            policies.setRetention(topic, new RetentionPolicies(61, 101));
            checks.seen(new RetentionPolicies(61, 101), () -> policies.getRetention(topic, true));
        });
        checks.check("all policies of a topic are deleted", () -> {
            policies.setMaxProducers(topic, 3);
            checks.seen(3, () -> policies.getMaxProducers(topic));
            policies.deleteTopicPolicies(topic);
            checks.seen(null, () -> policies.getMaxProducers(topic));
            checks.seen(null, () -> policies.getRetention(topic));
        });
        checks.refused("topic max consumers below zero", PulsarAdminException.PreconditionFailedException.class,
                () -> policies.setMaxConsumers(topic, -2));
    }
}

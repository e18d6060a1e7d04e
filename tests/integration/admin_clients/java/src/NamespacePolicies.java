import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.*;

/** Every policy of a namespace: set, seen, and removed where it can be. */
final class NamespacePolicies {
    private NamespacePolicies() {}

    static void run(Checks checks, Namespaces namespaces, String ns, String cluster) {
        rates(checks, namespaces, ns);
        limits(checks, namespaces, ns);
        storage(checks, namespaces, ns);
        rest(checks, namespaces, ns, cluster);
    }

    private static void rates(Checks checks, Namespaces namespaces, String ns) {
        DispatchRate rate = DispatchRate.builder()
                .dispatchThrottlingRateInMsg(100).dispatchThrottlingRateInByte(2_000).ratePeriodInSecond(2).build();
        checks.policy("namespace publish rate", new PublishRate(10, 1_000),
                value -> namespaces.setPublishRate(ns, value), () -> namespaces.getPublishRate(ns),
                () -> namespaces.removePublishRate(ns));
        checks.policy("namespace dispatch rate", rate,
                value -> namespaces.setDispatchRate(ns, value), () -> namespaces.getDispatchRate(ns),
                () -> namespaces.removeDispatchRate(ns));
        checks.policy("namespace subscription dispatch rate", rate,
                value -> namespaces.setSubscriptionDispatchRate(ns, value),
                () -> namespaces.getSubscriptionDispatchRate(ns),
                () -> namespaces.removeSubscriptionDispatchRate(ns));
        checks.policy("namespace replicator dispatch rate", rate,
                value -> namespaces.setReplicatorDispatchRate(ns, value),
                () -> namespaces.getReplicatorDispatchRate(ns),
                () -> namespaces.removeReplicatorDispatchRate(ns));
        checks.policy("namespace subscribe rate", new SubscribeRate(5, 10),
                value -> namespaces.setSubscribeRate(ns, value), () -> namespaces.getSubscribeRate(ns),
                () -> namespaces.removeSubscribeRate(ns));
    }

    private static void limits(Checks checks, Namespaces namespaces, String ns) {
        checks.policy("namespace max producers per topic", 3,
                value -> namespaces.setMaxProducersPerTopic(ns, value),
                () -> namespaces.getMaxProducersPerTopic(ns), () -> namespaces.removeMaxProducersPerTopic(ns));
        checks.policy("namespace max consumers per topic", 4,
                value -> namespaces.setMaxConsumersPerTopic(ns, value),
                () -> namespaces.getMaxConsumersPerTopic(ns), () -> namespaces.removeMaxConsumersPerTopic(ns));
        checks.policy("namespace max consumers per subscription", 5,
                value -> namespaces.setMaxConsumersPerSubscription(ns, value),
                () -> namespaces.getMaxConsumersPerSubscription(ns),
                () -> namespaces.removeMaxConsumersPerSubscription(ns));
        checks.policy("namespace max subscriptions per topic", 6,
                value -> namespaces.setMaxSubscriptionsPerTopic(ns, value),
                () -> namespaces.getMaxSubscriptionsPerTopic(ns),
                () -> namespaces.removeMaxSubscriptionsPerTopic(ns));
        checks.policy("namespace max topics", 70,
                value -> namespaces.setMaxTopicsPerNamespace(ns, value),
                () -> namespaces.getMaxTopicsPerNamespace(ns), () -> namespaces.removeMaxTopicsPerNamespace(ns));
        checks.policy("namespace max unacknowledged messages per consumer", 800,
                value -> namespaces.setMaxUnackedMessagesPerConsumer(ns, value),
                () -> namespaces.getMaxUnackedMessagesPerConsumer(ns),
                () -> namespaces.removeMaxUnackedMessagesPerConsumer(ns));
        checks.policy("namespace max unacknowledged messages per subscription", 900,
                value -> namespaces.setMaxUnackedMessagesPerSubscription(ns, value),
                () -> namespaces.getMaxUnackedMessagesPerSubscription(ns),
                () -> namespaces.removeMaxUnackedMessagesPerSubscription(ns));
    }

    private static void storage(Checks checks, Namespaces namespaces, String ns) {
        checks.policy("namespace message TTL", 3_600,
                value -> namespaces.setNamespaceMessageTTL(ns, value),
                () -> namespaces.getNamespaceMessageTTL(ns), () -> namespaces.removeNamespaceMessageTTL(ns));
        checks.policy("namespace retention", new RetentionPolicies(60, 100),
                value -> namespaces.setRetention(ns, value), () -> namespaces.getRetention(ns),
                () -> namespaces.removeRetention(ns));
        checks.policy("namespace persistence", new PersistencePolicies(1, 1, 1, 5.0),
                value -> namespaces.setPersistence(ns, value), () -> namespaces.getPersistence(ns),
                () -> namespaces.removePersistence(ns));
        for (BacklogQuota.BacklogQuotaType type : BacklogQuota.BacklogQuotaType.values()) {
            BacklogQuota quota = BacklogQuota.builder().limitSize(1 << 30).limitTime(7_200)
                    .retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build();
            checks.policy("namespace backlog quota of " + type, quota,
                    value -> namespaces.setBacklogQuota(ns, value, type),
                    () -> namespaces.getBacklogQuotaMap(ns).get(type),
                    () -> namespaces.removeBacklogQuota(ns, type));
        }
        checks.policy("namespace compaction threshold", 1_000_000L,
                value -> namespaces.setCompactionThreshold(ns, value),
                () -> namespaces.getCompactionThreshold(ns), () -> namespaces.removeCompactionThreshold(ns));
        checks.setting("namespace offload threshold", 1_000_000L,
                value -> namespaces.setOffloadThreshold(ns, value), () -> namespaces.getOffloadThreshold(ns));
        checks.setting("namespace offload threshold in seconds", 300L,
                value -> namespaces.setOffloadThresholdInSeconds(ns, value),
                () -> namespaces.getOffloadThresholdInSeconds(ns));
        checks.policy("namespace offload deletion lag", 60_000L,
                value -> namespaces.setOffloadDeleteLag(ns, value, TimeUnit.MILLISECONDS),
                () -> namespaces.getOffloadDeleteLagMs(ns), () -> namespaces.clearOffloadDeleteLag(ns));
        checks.policy("namespace delayed delivery",
                DelayedDeliveryPolicies.builder().active(true).tickTime(2_000).maxDeliveryDelayInMillis(9_000).build(),
                value -> namespaces.setDelayedDeliveryMessages(ns, value),
                () -> namespaces.getDelayedDelivery(ns), () -> namespaces.removeDelayedDeliveryMessages(ns));
        checks.policy("namespace inactive topics",
                new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_no_subscriptions, 90, true),
                value -> namespaces.setInactiveTopicPolicies(ns, value),
                () -> namespaces.getInactiveTopicPolicies(ns), () -> namespaces.removeInactiveTopicPolicies(ns));
        checks.policy("namespace deduplication", true,
                value -> namespaces.setDeduplicationStatus(ns, value),
                () -> namespaces.getDeduplicationStatus(ns), () -> namespaces.removeDeduplicationStatus(ns));
        checks.policy("namespace deduplication snapshot interval", 500,
                value -> namespaces.setDeduplicationSnapshotInterval(ns, value),
                () -> namespaces.getDeduplicationSnapshotInterval(ns),
                () -> namespaces.removeDeduplicationSnapshotInterval(ns));
        checks.policy("namespace subscription expiration time", 30,
                value -> namespaces.setSubscriptionExpirationTime(ns, value),
                () -> namespaces.getSubscriptionExpirationTime(ns),
                () -> namespaces.removeSubscriptionExpirationTime(ns));
    }

    private static void rest(Checks checks, Namespaces namespaces, String ns, String cluster) {
        checks.policy("namespace topic auto-creation",
                AutoTopicCreationOverride.builder().allowAutoTopicCreation(true)
                        .topicType("partitioned").defaultNumPartitions(3).build(),
                value -> namespaces.setAutoTopicCreation(ns, value),
                () -> namespaces.getAutoTopicCreation(ns), () -> namespaces.removeAutoTopicCreation(ns));
        checks.policy("namespace subscription auto-creation",
                AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(false).build(),
                value -> namespaces.setAutoSubscriptionCreation(ns, value),
                () -> namespaces.getAutoSubscriptionCreation(ns),
                () -> namespaces.removeAutoSubscriptionCreation(ns));
        checks.policy("namespace subscription types", Set.of(SubscriptionType.Shared, SubscriptionType.Failover),
                value -> namespaces.setSubscriptionTypesEnabled(ns, value),
                () -> namespaces.getSubscriptionTypesEnabled(ns),
                () -> namespaces.removeSubscriptionTypesEnabled(ns));
        checks.policy("namespace anti-affinity group", "apart",
                value -> namespaces.setNamespaceAntiAffinityGroup(ns, value),
                () -> namespaces.getNamespaceAntiAffinityGroup(ns),
                () -> namespaces.deleteNamespaceAntiAffinityGroup(ns));
        checks.check("namespaces of an anti-affinity group", () -> {
            namespaces.setNamespaceAntiAffinityGroup(ns, "apart");
            Checks.same(List.of(ns), namespaces.getAntiAffinityNamespaces(ns.split("/")[0], cluster, "apart"));
            namespaces.deleteNamespaceAntiAffinityGroup(ns);
        });
        checks.setting("namespace encryption required", true,
                value -> namespaces.setEncryptionRequiredStatus(ns, value),
                () -> namespaces.getEncryptionRequiredStatus(ns));
        checks.setting("namespace subscription authorization mode", SubscriptionAuthMode.Prefix,
                value -> namespaces.setSubscriptionAuthMode(ns, value),
                () -> namespaces.getSubscriptionAuthMode(ns));
        checks.setting("namespace schema compatibility", SchemaCompatibilityStrategy.BACKWARD,
                value -> namespaces.setSchemaCompatibilityStrategy(ns, value),
                () -> namespaces.getSchemaCompatibilityStrategy(ns));
        checks.check("namespace schema auto-update compatibility", () -> {
            // The client cannot read it while it is not set.
            namespaces.setSchemaAutoUpdateCompatibilityStrategy(ns, SchemaAutoUpdateCompatibilityStrategy.Forward);
            checks.seen(SchemaAutoUpdateCompatibilityStrategy.Forward,
                    () -> namespaces.getSchemaAutoUpdateCompatibilityStrategy(ns));
        });
        checks.setting("namespace schema validation", true,
                value -> namespaces.setSchemaValidationEnforced(ns, value),
                () -> namespaces.getSchemaValidationEnforced(ns));
        checks.setting("namespace schema auto-update", false,
                value -> namespaces.setIsAllowAutoUpdateSchema(ns, value),
                () -> namespaces.getIsAllowAutoUpdateSchema(ns));
        checks.check("namespace dispatcher pause on ack state", () -> {
            namespaces.setDispatcherPauseOnAckStatePersistent(ns);
            checks.seen(true, () -> namespaces.getDispatcherPauseOnAckStatePersistent(ns));
            namespaces.removeDispatcherPauseOnAckStatePersistent(ns);
            checks.seen(false, () -> namespaces.getDispatcherPauseOnAckStatePersistent(ns));
        });
        checks.check("namespace replication clusters", () -> {
            namespaces.setNamespaceReplicationClusters(ns, Set.of(cluster));
            checks.seen(List.of(cluster), () -> namespaces.getNamespaceReplicationClusters(ns));
        });
        checks.check("namespace allowed clusters", () -> {
            namespaces.setNamespaceAllowedClusters(ns, Set.of(cluster));
            checks.seen(List.of(cluster), () -> namespaces.getNamespaceAllowedClusters(ns));
        });
        checks.check("namespace properties", () -> {
            namespaces.setProperties(ns, Map.of("a", "1", "b", "2"));
            namespaces.setProperty(ns, "c", "3");
            checks.seen(Map.of("a", "1", "b", "2", "c", "3"), () -> namespaces.getProperties(ns));
            checks.seen("3", () -> namespaces.getProperty(ns, "c"));
            Checks.same("3", namespaces.removeProperty(ns, "c"));
            namespaces.clearProperties(ns);
            checks.seen(Map.of(), () -> namespaces.getProperties(ns));
        });
        checks.check("namespace bookie affinity group", () -> {
            BookieAffinityGroupData group = BookieAffinityGroupData.builder()
                    .bookkeeperAffinityGroupPrimary("a").bookkeeperAffinityGroupSecondary("b").build();
            namespaces.setBookieAffinityGroup(ns, group);
            checks.seen(group, () -> namespaces.getBookieAffinityGroup(ns));
            namespaces.deleteBookieAffinityGroup(ns);
        });
        checks.check("all policies of a namespace", () -> {
            namespaces.setNamespaceMessageTTL(ns, 77);
            checks.seen(77, () -> namespaces.getPolicies(ns).message_ttl_in_seconds);
            namespaces.removeNamespaceMessageTTL(ns);
        });
        checks.refused("namespace TTL below zero", PulsarAdminException.PreconditionFailedException.class,
                () -> namespaces.setNamespaceMessageTTL(ns, -2));
    }
}

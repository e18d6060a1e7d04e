package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

// of binds the namespace of the checks to a getter.
func of[T any](get func(utils.NameSpaceName) (T, error)) func() (T, error) {
	return func() (T, error) { return get(ns()) }
}

// to binds it to a setter.
func to[T any](set func(utils.NameSpaceName, T) error) func(T) error {
	return func(value T) error { return set(ns(), value) }
}

// without binds it to a remover.
func without(remove func(utils.NameSpaceName) error) func() error {
	return func() error { return remove(ns()) }
}

func namespacePolicies(c *checks, n admin.Namespaces, cluster string) {
	rate := utils.DispatchRate{
		DispatchThrottlingRateInMsg: 100, DispatchThrottlingRateInByte: 2000, RatePeriodInSecond: 2}
	c.check("namespace rates", func() error {
		publish := utils.PublishRate{PublishThrottlingRateInMsg: 10, PublishThrottlingRateInByte: 1000}
		subscribe := utils.SubscribeRate{SubscribeThrottlingRatePerConsumer: 5, RatePeriodInSecond: 10}
		return all(
			func() error { return n.SetPublishRate(ns(), publish) },
			func() error { return seen(c, publish, of(n.GetPublishRate)) },
			func() error { return n.SetDispatchRate(ns(), rate) },
			func() error { return seen(c, rate, of(n.GetDispatchRate)) },
			func() error { return n.SetSubscriptionDispatchRate(ns(), rate) },
			func() error { return seen(c, rate, of(n.GetSubscriptionDispatchRate)) },
			func() error { return n.SetSubscribeRate(ns(), subscribe) },
			func() error { return seen(c, subscribe, of(n.GetSubscribeRate)) },
			func() error { return n.SetReplicatorDispatchRate(ns(), rate) },
			func() error { return seen(c, rate, of(n.GetReplicatorDispatchRate)) },
		)
	})
	policy(c, "namespace message TTL", 3600, func(value int) error { return n.SetNamespaceMessageTTL(namespace, value) },
		func() (int, error) { return n.GetNamespaceMessageTTL(namespace) },
		func() error { return n.RemoveNamespaceMessageTTL(namespace) })
	policy(c, "namespace retention", pointer(utils.NewRetentionPolicies(60, 100)),
		func(value *utils.RetentionPolicies) error { return n.SetRetention(namespace, *value) },
		func() (*utils.RetentionPolicies, error) { return n.GetRetention(namespace) },
		func() error { return n.RemoveRetention(namespace) })
	policy(c, "namespace persistence", pointer(utils.NewPersistencePolicies(1, 1, 1, 5)),
		func(value *utils.PersistencePolicies) error { return n.SetPersistence(namespace, *value) },
		func() (*utils.PersistencePolicies, error) { return n.GetPersistence(namespace) },
		func() error { return n.RemovePersistence(namespace) })
	policy(c, "namespace backlog quota", utils.NewBacklogQuota(1<<30, 7200, utils.ConsumerBacklogEviction),
		func(value utils.BacklogQuota) error {
			return n.SetBacklogQuota(namespace, value, utils.DestinationStorage)
		},
		func() (utils.BacklogQuota, error) {
			quotas, err := n.GetBacklogQuotaMap(namespace)
			return quotas[utils.DestinationStorage], err
		},
		func() error { return n.RemoveBacklogQuota(namespace) })
	policy(c, "namespace max producers per topic", 3, to(n.SetMaxProducersPerTopic),
		of(n.GetMaxProducersPerTopic), without(n.RemoveMaxProducersPerTopic))
	policy(c, "namespace max consumers per topic", 4, to(n.SetMaxConsumersPerTopic),
		of(n.GetMaxConsumersPerTopic), without(n.RemoveMaxConsumersPerTopic))
	policy(c, "namespace max consumers per subscription", 5, to(n.SetMaxConsumersPerSubscription),
		of(n.GetMaxConsumersPerSubscription), without(n.RemoveMaxConsumersPerSubscription))
	policy(c, "namespace max topics", 70, to(n.SetMaxTopicsPerNamespace),
		of(n.GetMaxTopicsPerNamespace), without(n.RemoveMaxTopicsPerNamespace))
	policy(c, "namespace subscription expiration time", 30, to(n.SetSubscriptionExpirationTime),
		of(n.GetSubscriptionExpirationTime), without(n.RemoveSubscriptionExpirationTime))
	policy(c, "namespace inactive topics",
		utils.NewInactiveTopicPolicies(pointer(utils.DeleteWhenNoSubscriptions), 90, true),
		to(n.SetInactiveTopicPolicies), of(n.GetInactiveTopicPolicies), without(n.RemoveInactiveTopicPolicies))
	setting(c, "namespace offload threshold", int64(1_000_000), to(n.SetOffloadThreshold),
		of(n.GetOffloadThreshold))
	setting(c, "namespace offload threshold in seconds", int64(300), to(n.SetOffloadThresholdInSeconds),
		of(n.GetOffloadThresholdInSeconds))
	setting(c, "namespace schema validation", true, to(n.SetSchemaValidationEnforced),
		of(n.GetSchemaValidationEnforced))
	setting(c, "namespace schema compatibility", utils.SchemaCompatibilityStrategyBackward,
		to(n.SetSchemaCompatibilityStrategy), of(n.GetSchemaCompatibilityStrategy))
	c.check("namespace policies that this client cannot take back", func() error {
		return all(
			func() error { return n.SetCompactionThreshold(ns(), 1_000_000) },
			func() error { return seen(c, 1_000_000, of(n.GetCompactionThreshold)) },
			func() error { return n.SetSchemaAutoUpdateCompatibilityStrategy(ns(), utils.Forward) },
			func() error { return seen(c, utils.Forward, of(n.GetSchemaAutoUpdateCompatibilityStrategy)) },
		)
	})
	setting(c, "namespace schema auto-update", false, to(n.SetIsAllowAutoUpdateSchema),
		of(n.GetIsAllowAutoUpdateSchema))
	c.check("namespace topic auto-creation", func() error {
		value := utils.TopicAutoCreationConfig{Allow: true, Type: utils.Partitioned, Partitions: pointer(3)}
		return all(
			func() error { return n.SetTopicAutoCreation(ns(), value) },
			func() error { return seen(c, &value, of(n.GetTopicAutoCreation)) },
			func() error { return n.RemoveTopicAutoCreation(ns()) },
		)
	})
	c.check("namespace anti-affinity group", func() error {
		return all(
			func() error { return n.SetNamespaceAntiAffinityGroup(namespace, "apart") },
			func() error {
				return seen(c, "apart", func() (string, error) {
					found, err := n.GetNamespaceAntiAffinityGroup(namespace)
					return strings.Trim(found, `"`), err
				})
			},
			func() error { return n.DeleteNamespaceAntiAffinityGroup(namespace) },
		)
	})
	c.check("namespace properties", func() error {
		value := map[string]string{"a": "1"}
		return all(
			func() error { return n.UpdateProperties(ns(), value) },
			func() error { return seen(c, value, of(n.GetProperties)) },
			func() error { return n.RemoveProperties(ns()) },
		)
	})
	c.check("namespace replication clusters", func() error {
		return all(
			func() error { return n.SetNamespaceReplicationClusters(namespace, []string{cluster}) },
			func() error {
				return seen(c, []string{cluster},
					func() ([]string, error) { return n.GetNamespaceReplicationClusters(namespace) })
			},
		)
	})
	c.check("namespace deduplication, encryption, authorization mode, offload lag", func() error {
		return all(
			func() error { return n.SetDeduplicationStatus(namespace, false) },
			func() error { return n.SetEncryptionRequiredStatus(ns(), false) },
			func() error { return n.SetSubscriptionAuthMode(ns(), utils.None) },
			func() error { return n.SetOffloadDeleteLag(ns(), 60_000) },
			func() error { return seen(c, 60_000, of(n.GetOffloadDeleteLag)) },
			func() error { return n.ClearOffloadDeleteLag(ns()) },
		)
	})
	c.check("namespace bookie affinity group", func() error {
		value := utils.BookieAffinityGroupData{
			BookkeeperAffinityGroupPrimary: "a", BookkeeperAffinityGroupSecondary: "b"}
		return all(
			func() error { return n.SetBookieAffinityGroup(namespace, value) },
			func() error {
				return seen(c, &value,
					func() (*utils.BookieAffinityGroupData, error) { return n.GetBookieAffinityGroup(namespace) })
			},
			func() error { return n.DeleteBookieAffinityGroup(namespace) },
		)
	})
	c.refused("namespace TTL below zero", http.StatusPreconditionFailed,
		func() error { return n.SetNamespaceMessageTTL(namespace, -2) })
}

// Getters, setters and removers of one policy of topics, as methods of the client have them.
type (
	getter[T any] func(context.Context, utils.TopicName, bool) (T, error)
	setter[T any] func(context.Context, utils.TopicName, T) error
	remover       func(context.Context, utils.TopicName) error
)

func topicPolicy[T any](c *checks, topic utils.TopicName, what string, value T,
	set setter[T], get getter[*T], remove remover) {
	ctx := context.Background()
	policy(c, "topic "+what, &value,
		func(value *T) error { return set(ctx, topic, *value) },
		func() (*T, error) { return get(ctx, topic, false) },
		func() error { return remove(ctx, topic) })
}

func topicPolicies(c *checks, client pulsaradmin.Client, cluster string) {
	topic := name("persistent://" + namespace + "/policies")
	c.check("a topic for policies", func() error { return client.Topics().Create(topic, 0) })
	p, err := pulsaradmin.TopicPoliciesOf(client, false)
	fail(err)
	rate := utils.DispatchRateData{
		DispatchThrottlingRateInMsg: 100, DispatchThrottlingRateInByte: 2000, RatePeriodInSecond: 2}
	topicPolicy(c, topic, "message TTL", 3600, p.SetMessageTTL, p.GetMessageTTL, p.RemoveMessageTTL)
	topicPolicy(c, topic, "max producers", 3, p.SetMaxProducers, p.GetMaxProducers, p.RemoveMaxProducers)
	topicPolicy(c, topic, "max consumers", 4, p.SetMaxConsumers, p.GetMaxConsumers, p.RemoveMaxConsumers)
	topicPolicy(c, topic, "max unacknowledged messages per consumer", 500, p.SetMaxUnackMessagesPerConsumer,
		p.GetMaxUnackMessagesPerConsumer, p.RemoveMaxUnackMessagesPerConsumer)
	topicPolicy(c, topic, "max unacknowledged messages per subscription", 600,
		p.SetMaxUnackMessagesPerSubscription, p.GetMaxUnackMessagesPerSubscription,
		p.RemoveMaxUnackMessagesPerSubscription)
	topicPolicy(c, topic, "persistence", utils.PersistenceData{
		BookkeeperEnsemble: 1, BookkeeperWriteQuorum: 1, BookkeeperAckQuorum: 1, ManagedLedgerMaxMarkDeleteRate: 5},
		p.SetPersistence, p.GetPersistence, p.RemovePersistence)
	topicPolicy(c, topic, "delayed delivery", utils.DelayedDeliveryData{TickTime: 2000, Active: true},
		p.SetDelayedDelivery, p.GetDelayedDelivery, p.RemoveDelayedDelivery)
	topicPolicy(c, topic, "dispatch rate", rate, p.SetDispatchRate, p.GetDispatchRate, p.RemoveDispatchRate)
	topicPolicy(c, topic, "subscription dispatch rate", rate, p.SetSubscriptionDispatchRate,
		p.GetSubscriptionDispatchRate, p.RemoveSubscriptionDispatchRate)
	topicPolicy(c, topic, "replicator dispatch rate", rate, p.SetReplicatorDispatchRate,
		p.GetReplicatorDispatchRate, p.RemoveReplicatorDispatchRate)
	topicPolicy(c, topic, "publish rate",
		utils.PublishRateData{PublishThrottlingRateInMsg: 10, PublishThrottlingRateInByte: 1000},
		p.SetPublishRate, p.GetPublishRate, p.RemovePublishRate)
	topicPolicy(c, topic, "subscribe rate",
		utils.SubscribeRate{SubscribeThrottlingRatePerConsumer: 5, RatePeriodInSecond: 10},
		p.SetSubscribeRate, p.GetSubscribeRate, p.RemoveSubscribeRate)
	topicPolicy(c, topic, "deduplication", true, p.SetDeduplicationStatus, p.GetDeduplicationStatus,
		p.RemoveDeduplicationStatus)
	topicPolicy(c, topic, "deduplication snapshot interval", 500, p.SetDeduplicationSnapshotInterval,
		p.GetDeduplicationSnapshotInterval, p.RemoveDeduplicationSnapshotInterval)
	topicPolicy(c, topic, "retention", utils.NewRetentionPolicies(60, 100), p.SetRetention, p.GetRetention,
		p.RemoveRetention)
	topicPolicy(c, topic, "compaction threshold", int64(1_000_000), p.SetCompactionThreshold,
		p.GetCompactionThreshold, p.RemoveCompactionThreshold)
	topicPolicy(c, topic, "inactivity",
		utils.NewInactiveTopicPolicies(pointer(utils.DeleteWhenNoSubscriptions), 90, true),
		p.SetInactiveTopicPolicies, p.GetInactiveTopicPolicies, p.RemoveInactiveTopicPolicies)
	topicPolicy(c, topic, "max consumers per subscription", 5, p.SetMaxConsumersPerSubscription,
		p.GetMaxConsumersPerSubscription, p.RemoveMaxConsumersPerSubscription)
	topicPolicy(c, topic, "max message size", 7000, p.SetMaxMessageSize, p.GetMaxMessageSize, p.RemoveMaxMessageSize)
	topicPolicy(c, topic, "max subscriptions", 6, p.SetMaxSubscriptionsPerTopic, p.GetMaxSubscriptionsPerTopic,
		p.RemoveMaxSubscriptionsPerTopic)
	topicPolicy(c, topic, "subscription auto-creation", utils.AutoSubscriptionCreationOverride{},
		p.SetAutoSubscriptionCreation, p.GetAutoSubscriptionCreation, p.RemoveAutoSubscriptionCreation)
	topicPolicy(c, topic, "schema compatibility", utils.SchemaCompatibilityStrategyBackward,
		p.SetSchemaCompatibilityStrategy, p.GetSchemaCompatibilityStrategy, p.RemoveSchemaCompatibilityStrategy)
	ctx := context.Background()
	setting(c, "topic schema validation", pointer(true),
		func(value *bool) error { return p.SetSchemaValidationEnforced(ctx, topic, value != nil && *value) },
		func() (*bool, error) { return p.GetSchemaValidationEnforced(ctx, topic, false) })
	policy(c, "topic backlog quota", utils.NewBacklogQuota(1<<30, 7200, utils.ConsumerBacklogEviction),
		func(value utils.BacklogQuota) error {
			return p.SetBacklogQuota(ctx, topic, value, utils.DestinationStorage)
		},
		func() (utils.BacklogQuota, error) {
			quotas, err := p.GetBacklogQuotaMap(ctx, topic, false)
			return quotas[utils.DestinationStorage], err
		},
		func() error { return p.RemoveBacklogQuota(ctx, topic, utils.DestinationStorage) })
	c.check("topic replication clusters", func() error {
		return all(
			func() error { return p.SetReplicationClusters(ctx, topic, []string{cluster}) },
			func() error {
				return seen(c, []string{cluster},
					func() ([]string, error) { return p.GetReplicationClusters(ctx, topic, false) })
			},
			func() error { return p.RemoveReplicationClusters(ctx, topic) },
		)
	})
	c.refused("topic max consumers below zero", http.StatusPreconditionFailed,
		func() error { return p.SetMaxConsumers(ctx, topic, -2) })
}

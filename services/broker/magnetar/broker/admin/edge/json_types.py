"""JSON types of the admin API's requests and responses, by the names that the route table uses.

Members are written `name:Type`. All of them are optional, and unknown members of a body are ignored. Names
and types are Pulsar's; enum values are in Pulsar's order, because a body may give the index. `?` marks
scalars that are nullable in a body, as in Pulsar, except for the two offload thresholds, where 0 would mean
to offload everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from magnetar.broker.policies.config import SUBSCRIPTION_TYPES

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

ENUMS: Final[Mapping[str, str]] = {
    "OrphanKind": "ledger topic-ledger topic partitioned-topic topic-policies schema",
    "SubscriptionType": " ".join(SUBSCRIPTION_TYPES),
    "BacklogQuotaType": "destination_storage message_age",
    "Mode": "PERSISTENT NON_PERSISTENT ALL",
    "TopicVersion": "V1 V2",
    "SchemaType": (
        "NONE STRING JSON PROTOBUF AVRO BOOLEAN INT8 INT16 INT32 INT64 FLOAT DOUBLE DATE TIME TIMESTAMP "
        "KEY_VALUE INSTANT LOCAL_DATE LOCAL_TIME LOCAL_DATE_TIME PROTOBUF_NATIVE BYTES AUTO AUTO_CONSUME "
        "AUTO_PUBLISH"
    ),
    "AuthAction": "produce consume functions sources sinks packages",
    "ProxyProtocol": "SNI",
    "UnloadScope": "all_matching none changed",
    "AutoFailoverPolicyType": "min_available",
    "BrokerAssignment": "primary secondary shared",
    "SubscriptionAuthMode": "None Prefix",
    "SchemaAutoUpdateCompatibilityStrategy": (
        "AutoUpdateDisabled Backward Forward Full AlwaysCompatible BackwardTransitive ForwardTransitive "
        "FullTransitive"
    ),
    "SchemaCompatibilityStrategy": (
        "UNDEFINED ALWAYS_INCOMPATIBLE ALWAYS_COMPATIBLE BACKWARD FORWARD FULL BACKWARD_TRANSITIVE "
        "FORWARD_TRANSITIVE FULL_TRANSITIVE"
    ),
    "BacklogQuotaPolicy": "producer_request_hold producer_exception consumer_backlog_eviction",
    "InactiveTopicDeleteMode": "delete_when_no_subscriptions delete_when_subscriptions_caught_up",
    "OffloadedReadPriority": "bookkeeper-first tiered-storage-first",
    "OffloadedLedgerStatus": "OK RUNNING MISSING UNKNOWN",
    "AccessMode": "Shared Exclusive ExclusiveWithFencing WaitForExclusive",
    "ProcessStatus": "NOT_RUN RUNNING SUCCESS ERROR",
    "CompressionType": "NONE LZ4 ZLIB ZSTD SNAPPY",
}
"""The values of each enum, separated by spaces."""

OBJECTS: Final[Mapping[str, str]] = {
    "TenantInfo": "adminRoles:List<String> allowedClusters:List<String>",
    "ClusterData": (
        "serviceUrl:String serviceUrlTls:String brokerServiceUrl:String brokerServiceUrlTls:String "
        "proxyServiceUrl:String authenticationPlugin:String authenticationParameters:String "
        "proxyProtocol:ProxyProtocol peerClusterNames:List<String> brokerClientTlsEnabled:boolean "
        "tlsAllowInsecureConnection:boolean brokerClientTlsEnabledWithKeyStore:boolean "
        "brokerClientTlsTrustStoreType:String brokerClientTlsTrustStore:String "
        "brokerClientTlsTrustStorePassword:String brokerClientTlsKeyStoreType:String "
        "brokerClientTlsKeyStore:String brokerClientTlsKeyStorePassword:String "
        "brokerClientTrustCertsFilePath:String brokerClientKeyFilePath:String "
        "brokerClientCertificateFilePath:String brokerClientSslFactoryPlugin:String "
        "brokerClientSslFactoryPluginParams:String listenerName:String"
    ),
    "TaskGroup": "count:int name:String stack:List<String>",
    "ThreadStack": "name:String stack:List<String>",
    "TaskDump": (
        "broker:String atMs:long tasks:int stacks:int truncated:boolean groups:List<TaskGroup> "
        "threads:List<ThreadStack>"
    ),
    "Orphan": (
        "kind:OrphanKind key:String what:String reason:String bytes:long since:long settled:boolean "
        "askFirst:boolean"
    ),
    "Orphans": (
        "orphans:List<Orphan> bytes:long lookedAt:long truncated:boolean clearing:boolean halted:String"
    ),
    "OrphansCleared": "dryRun:boolean cleared:List<String> failed:List<String>",
    "ClusterPolicies": "migrated:boolean migratedClusterUrl:ClusterUrl",
    "FailureDomain": "brokers:List<String>",
    "NamespaceIsolationData": (
        "namespaces:List<String> primary:List<String> secondary:List<String> "
        "auto_failover_policy:AutoFailoverPolicyData unload_scope:UnloadScope"
    ),
    "AutoFailoverPolicyData": "parameters:Map<String> policy_type:AutoFailoverPolicyType",
    "BrokerNamespaceIsolationData": (
        "brokerName:String policyName:String namespaceRegex:List<String> primary:boolean"
    ),
    "BrokerInfo": "serviceUrl:String brokerId:String",
    "NamespaceOwnershipStatus": "broker_assignment:BrokerAssignment is_controlled:boolean is_active:boolean",
    "InternalConfigurationData": (
        "zookeeperServers:String configurationStoreServers:String metadataStoreUrl:String "
        "configurationMetadataStoreUrl:String ledgersRootPath:String bookkeeperMetadataServiceUri:String "
        "stateStorageServiceUrl:String"
    ),
    "OffloadOfTopic": (
        "topic:String ledgers:int waiting:int running:int failed:int complete:int unreadable:int "
        "offloadedBytes:long lastCompleted:long error:String"
    ),
    "OffloadPage": "topics:List<OffloadOfTopic> read:int next:String",
    "OffloadOfLedger": (
        "ledgerId:long entries:long bytes:long closed:long state:String location:String wanted:long "
        "begun:long heard:long completed:long leftBookies:long objectBytes:long rows:long failures:int "
        "error:String"
    ),
    "TopicOffload": (
        "topic:String ledgers:int waiting:int running:int failed:int complete:int unreadable:int "
        "offloadedBytes:long lastCompleted:long error:String "
        "states:List<OffloadOfLedger>"
    ),
    "OwnedBundle": (
        "namespace:String bundle:String since:long msgRateIn:double msgRateOut:double "
        "msgThroughputIn:double msgThroughputOut:double topics:int producers:int consumers:int"
    ),
    "BrokerOfMap": (
        "brokerId:String httpUrl:String leader:boolean loadAgeMs:long draining:boolean cpuPercent:double "
        "memoryBytes:long "
        "memoryBytesMax:long msgRateIn:double msgRateOut:double msgThroughputIn:double "
        "msgThroughputOut:double topics:int producers:int consumers:int bundleCount:int "
        "bundles:List<OwnedBundle>"
    ),
    "BundleMap": "brokers:List<BrokerOfMap>",
    "BookieOverview": (
        "bookieId:String state:String rack:String address:String freeBytes:long started:long "
        "ledgersToMove:long"
    ),
    "UnderReplicatedLedger": "ledgerId:long missing:List<String> since:long copiedBy:String",
    "BookieReport": (
        "bookies:List<BookieOverview> auditor:String auditorSince:long underReplicated:int inProgress:int "
        "underReplicatedLedgers:List<UnderReplicatedLedger>"
    ),
    "BookieLedgers": "ledgers:long fragments:long openFragments:long gaps:long",
    "LedgersByBookie": "ledgers:long complete:boolean bookies:Map<BookieLedgers>",
    "BookieInfo": "rack:String hostname:String",
    "RawBookieInfo": "bookieId:String",
    "BookiesClusterInfo": "bookies:List<RawBookieInfo>",
    "ResourceQuota": (
        "msgRateIn:double msgRateOut:double bandwidthIn:double bandwidthOut:double memory:double "
        "dynamic:boolean"
    ),
    "ResourceGroup": (
        "publishRateInMsgs:int? publishRateInBytes:long? dispatchRateInMsgs:int? dispatchRateInBytes:long?"
    ),
    "Policies": (
        "auth_policies:AuthPolicies replication_clusters:List<String> allowed_clusters:List<String> "
        "bundles:BundlesData backlog_quota_map:Map<BacklogQuota> clusterDispatchRate:Map<DispatchRate> "
        "topicDispatchRate:Map<DispatchRate> subscriptionDispatchRate:Map<DispatchRate> "
        "replicatorDispatchRate:Map<DispatchRate> clusterSubscribeRate:Map<SubscribeRate> "
        "persistence:PersistencePolicies deduplicationEnabled:boolean? "
        "autoTopicCreationOverride:AutoTopicCreationOverride "
        "autoSubscriptionCreationOverride:AutoSubscriptionCreationOverride "
        "publishMaxMessageRate:Map<PublishRate> latency_stats_sample_rate:Map<int> "
        "message_ttl_in_seconds:int? subscription_expiration_time_minutes:int? "
        "retention_policies:RetentionPolicies deleted:boolean encryption_required:boolean "
        "delayed_delivery_policies:DelayedDeliveryPolicies inactive_topic_policies:InactiveTopicPolicies "
        "subscription_auth_mode:SubscriptionAuthMode max_producers_per_topic:int? "
        "max_consumers_per_topic:int? max_consumers_per_subscription:int? "
        "max_unacked_messages_per_consumer:int? max_unacked_messages_per_subscription:int? "
        "max_subscriptions_per_topic:int? compaction_threshold:long? offload_threshold:long? "
        "offload_threshold_in_seconds:long? offload_deletion_lag_ms:long? max_topics_per_namespace:int? "
        "schema_auto_update_compatibility_strategy:SchemaAutoUpdateCompatibilityStrategy "
        "schema_compatibility_strategy:SchemaCompatibilityStrategy is_allow_auto_update_schema:boolean? "
        "schema_validation_enforced:boolean offload_policies:OffloadPolicies "
        "deduplicationSnapshotIntervalSeconds:int? subscription_types_enabled:List<SubscriptionType> "
        "properties:Map<String> resource_group_name:String migrated:boolean "
        "dispatcherPauseOnAckStatePersistentEnabled:boolean? entryFilters:EntryFilters"
    ),
    "AuthPolicies": (
        "namespace_auth:Map<List<AuthAction>> destination_auth:Map<Map<List<AuthAction>>> "
        "subscription_auth_roles:Map<List<String>>"
    ),
    "BundlesData": "boundaries:List<String> numBundles:int",
    "RetentionPolicies": "retentionTimeInMinutes:int retentionSizeInMB:long",
    "BacklogQuota": "limit:long? limitSize:long? limitTime:int policy:BacklogQuotaPolicy",
    "DispatchRate": (
        "dispatchThrottlingRateInMsg:int dispatchThrottlingRateInByte:long relativeToPublishRate:boolean "
        "ratePeriodInSecond:int"
    ),
    "SubscribeRate": "subscribeThrottlingRatePerConsumer:int ratePeriodInSecond:int",
    "PublishRate": "publishThrottlingRateInMsg:int publishThrottlingRateInByte:long",
    "PersistencePolicies": (
        "bookkeeperEnsemble:int bookkeeperWriteQuorum:int bookkeeperAckQuorum:int "
        "managedLedgerMaxMarkDeleteRate:double managedLedgerStorageClassName:String"
    ),
    "AutoTopicCreationOverride": "allowAutoTopicCreation:boolean topicType:String defaultNumPartitions:int?",
    "AutoSubscriptionCreationOverride": "allowAutoSubscriptionCreation:boolean",
    "DelayedDeliveryPolicies": "tickTime:long active:boolean maxDeliveryDelayInMillis:long",
    "InactiveTopicPolicies": (
        "inactiveTopicDeleteMode:InactiveTopicDeleteMode maxInactiveDurationSeconds:int "
        "deleteWhileInactive:boolean"
    ),
    "BookieAffinityGroupData": (
        "bookkeeperAffinityGroupPrimary:String bookkeeperAffinityGroupSecondary:String"
    ),
    "EntryFilters": "entryFilterNames:String",
    "OffloadPolicies": (
        "offloadersDirectory:String managedLedgerOffloadDriver:String managedLedgerOffloadMaxThreads:int? "
        "managedLedgerOffloadPrefetchRounds:int? managedLedgerOffloadThresholdInSeconds:long? "
        "managedLedgerOffloadThresholdInBytes:long? managedLedgerOffloadDeletionLagInMillis:long? "
        "managedLedgerOffloadedReadPriority:OffloadedReadPriority "
        "managedLedgerExtraConfigurations:Map<String> s3ManagedLedgerOffloadRegion:String "
        "s3ManagedLedgerOffloadBucket:String s3ManagedLedgerOffloadServiceEndpoint:String "
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes:int? s3ManagedLedgerOffloadReadBufferSizeInBytes:int? "
        "s3ManagedLedgerOffloadCredentialId:String s3ManagedLedgerOffloadCredentialSecret:String "
        "s3ManagedLedgerOffloadRole:String s3ManagedLedgerOffloadRoleSessionName:String "
        "gcsManagedLedgerOffloadRegion:String gcsManagedLedgerOffloadBucket:String "
        "gcsManagedLedgerOffloadMaxBlockSizeInBytes:int? gcsManagedLedgerOffloadReadBufferSizeInBytes:int? "
        "gcsManagedLedgerOffloadServiceAccountKeyFile:String fileSystemProfilePath:String "
        "fileSystemURI:String managedLedgerOffloadBucket:String managedLedgerOffloadRegion:String "
        "managedLedgerOffloadServiceEndpoint:String managedLedgerOffloadMaxBlockSizeInBytes:int? "
        "managedLedgerOffloadReadBufferSizeInBytes:int? s3Driver:boolean gcsDriver:boolean "
        "fileSystemDriver:boolean"
    ),
    "GrantTopicPermissionOptions": "topic:String role:String actions:List<AuthAction>",
    "RevokeTopicPermissionOptions": "topic:String role:String",
    "TopicHashPositions": "namespace:String bundle:String topicHashPositions:Map<long>",
    "TopicStats": (
        "msgRateIn:double msgThroughputIn:double msgRateOut:double msgThroughputOut:double "
        "bytesInCounter:long msgInCounter:long systemTopicBytesInCounter:long bytesOutCounter:long "
        "msgOutCounter:long bytesOutInternalCounter:long averageMsgSize:double msgChunkPublished:boolean "
        "storageSize:long backlogSize:long backlogQuotaLimitSize:long backlogQuotaLimitTime:long "
        "oldestBacklogMessageAgeSeconds:long oldestBacklogMessageSubscriptionName:String "
        "publishRateLimitedTimes:long earliestMsgPublishTimeInBacklogs:long offloadedStorageSize:long "
        "lastOffloadLedgerId:long lastOffloadSuccessTimeStamp:long lastOffloadFailureTimeStamp:long "
        "topicCreationTimeStamp:long lastPublishTimeStamp:long "
        "ongoingTxnCount:long abortedTxnCount:long committedTxnCount:long publishers:List<PublisherStats> "
        "waitingPublishers:int subscriptions:Map<SubscriptionStats> replication:Map<ReplicatorStats> "
        "deduplicationStatus:String topicEpoch:long nonContiguousDeletedMessagesRanges:int "
        "nonContiguousDeletedMessagesRangesSerializedSize:int delayedMessageIndexSizeInBytes:long "
        "compaction:CompactionStats ownerBroker:String"
    ),
    "PublisherStats": (
        "accessMode:AccessMode msgRateIn:double msgThroughputIn:double averageMsgSize:double "
        "chunkedMessageRate:double producerId:long supportsPartialProducer:boolean producerName:String "
        "address:String connectedSince:String clientVersion:String metadata:Map<String>"
    ),
    "SubscriptionStats": (
        "msgRateOut:double msgThroughputOut:double bytesOutCounter:long msgOutCounter:long "
        "msgRateRedeliver:double messageAckRate:double chunkedMessageRate:double msgBacklog:long "
        "backlogSize:long earliestMsgPublishTimeInBacklog:long msgBacklogNoDelayed:long "
        "blockedSubscriptionOnUnackedMsgs:boolean msgDelayed:long msgInReplay:long unackedMessages:long "
        "type:String activeConsumerName:String msgRateExpired:double totalMsgExpired:long "
        "lastExpireTimestamp:long lastConsumedFlowTimestamp:long lastConsumedTimestamp:long "
        "lastAckedTimestamp:long lastMarkDeleteAdvancedTimestamp:long consumers:List<ConsumerStats> "
        "isDurable:boolean isReplicated:boolean allowOutOfOrderDelivery:boolean keySharedMode:String "
        "consumersAfterMarkDeletePosition:Map<String> drainingHashesCount:int "
        "drainingHashesClearedTotal:long drainingHashesUnackedMessages:int "
        "nonContiguousDeletedMessagesRanges:int nonContiguousDeletedMessagesRangesSerializedSize:int "
        "delayedMessageIndexSizeInBytes:long subscriptionProperties:Map<String> "
        "filterProcessedMsgCount:long filterAcceptedMsgCount:long filterRejectedMsgCount:long "
        "filterRescheduledMsgCount:long dispatchThrottledMsgEventsBySubscriptionLimit:long "
        "dispatchThrottledBytesEventsBySubscriptionLimit:long dispatchThrottledMsgEventsByTopicLimit:long "
        "dispatchThrottledBytesEventsByTopicLimit:long dispatchThrottledMsgEventsByBrokerLimit:long "
        "dispatchThrottledBytesEventsByBrokerLimit:long durable:boolean replicated:boolean"
    ),
    "ConsumerStats": (
        "appId:String msgRateOut:double msgThroughputOut:double bytesOutCounter:long msgOutCounter:long "
        "msgRateRedeliver:double messageAckRate:double chunkedMessageRate:double consumerName:String "
        "availablePermits:int unackedMessages:int avgMessagesPerEntry:int "
        "blockedConsumerOnUnackedMsgs:boolean readPositionWhenJoining:String drainingHashesCount:int "
        "drainingHashesClearedTotal:long drainingHashesUnackedMessages:int "
        "drainingHashes:List<DrainingHash> address:String connectedSince:String clientVersion:String "
        "lastAckedTimestamp:long lastConsumedTimestamp:long lastConsumedFlowTimestamp:long "
        "keyHashRangeArrays:List<List<int>> keyHashRanges:List<String> metadata:Map<String> "
        "lastAckedTime:String lastConsumedTime:String"
    ),
    "DrainingHash": "hash:int unackMsgs:int blockedAttempts:int",
    "ReplicatorStats": (
        "msgRateIn:double msgInCount:long msgThroughputIn:double bytesInCount:long msgRateOut:double "
        "msgOutCount:long msgThroughputOut:double bytesOutCount:long msgRateExpired:double "
        "replicationBacklog:long connected:boolean replicationDelayInSeconds:long "
        "inboundConnection:String inboundConnectedSince:String outboundConnection:String "
        "outboundConnectedSince:String msgExpiredCount:long"
    ),
    "CompactionStats": (
        "lastCompactionRemovedEventCount:long lastCompactionSucceedTimestamp:long "
        "lastCompactionFailedTimestamp:long lastCompactionDurationTimeInMills:long"
    ),
    "PersistentTopicInternalStats": (
        "entriesAddedCounter:long numberOfEntries:long totalSize:long currentLedgerEntries:long "
        "currentLedgerSize:long lastLedgerCreatedTimestamp:String "
        "lastLedgerCreationFailureTimestamp:String waitingCursorsCount:int pendingAddEntriesCount:int "
        "lastConfirmedEntry:String state:String ledgers:List<LedgerInfo> cursors:Map<CursorStats> "
        "schemaLedgers:List<LedgerInfo> compactedLedger:LedgerInfo"
    ),
    "LedgerInfo": (
        "ledgerId:long entries:long size:long offloaded:boolean metadata:String underReplicated:boolean"
    ),
    "CursorStats": (
        "markDeletePosition:String readPosition:String waitingReadOp:boolean pendingReadOps:int "
        "messagesConsumedCounter:long cursorLedger:long cursorLedgerLastEntry:long "
        "individuallyDeletedMessages:String lastLedgerSwitchTimestamp:String state:String active:boolean "
        "numberOfEntriesSinceFirstNotAckedMessage:long totalNonContiguousDeletedMessagesRange:int "
        "subscriptionHavePendingRead:boolean subscriptionHavePendingReplayRead:boolean "
        "properties:Map<long>"
    ),
    "PartitionedTopicInternalStats": (
        "metadata:PartitionedTopicMetadata partitions:Map<PersistentTopicInternalStats>"
    ),
    "ManagedLedgerInfo": (
        "version:long creationDate:String modificationDate:String ledgers:List<StoredLedger> "
        "terminatedPosition:PositionInfo cursors:Map<CursorInfo> properties:Map<String> "
        "partitions:Map<ManagedLedgerInfo>"
    ),
    "PartitionedTopicMetadata": "partitions:int deleted:boolean properties:Map<String>",
    "LongRunningProcessStatus": "status:ProcessStatus lastError:String",
    "OffloadedLedgers": (
        "objects:List<OffloadedLedger> total:int errors:int unknown:int truncated:boolean "
        "failures:List<String>"
    ),
    "OffloadedLedger": (
        "topic:String ledgerId:long uuid:String status:OffloadedLedgerStatus location:String name:String "
        "objects:int size:long lastModified:long"
    ),
    "OffloadProcessStatus": "status:ProcessStatus lastError:String firstUnoffloadedMessage:MessageId",
    "AnalyzeSubscriptionBacklogResult": (
        "entries:long messages:long filterRejectedEntries:long filterAcceptedEntries:long "
        "filterRescheduledEntries:long filterRejectedMessages:long filterAcceptedMessages:long "
        "filterRescheduledMessages:long aborted:boolean firstMessageId:String lastMessageId:String"
    ),
    "PersistentOfflineTopicStats": (
        "storageSize:long totalMessages:long messageBacklog:long brokerName:String topicName:String "
        "dataLedgerDetails:List<LedgerDetails> cursorDetails:Map<CursorDetails> statGeneratedAt:long"
    ),
    "LedgerDetails": "entries:long timestamp:long size:long ledgerId:long",
    "CursorDetails": "cursorBacklog:long cursorLedgerId:long",
    "PostSchemaPayload": "type:String schema:String properties:Map<String>",
    "GetSchemaResponse": "version:long type:SchemaType timestamp:long data:String properties:Map<String>",
    "GetAllVersionsSchemaResponse": "getSchemaResponses:List<GetSchemaResponse>",
    "IsCompatibilityResponse": "schemaCompatibilityStrategy:String compatibility:boolean",
    "LookupData": (
        "brokerUrl:String brokerUrlTls:String httpUrl:String httpUrlTls:String nativeUrl:String "
        "brokerUrlSsl:String"
    ),
    "TransactionCoordinatorInfo": "id:long brokerServiceUrl:String",
    "TransactionCoordinatorStats": (
        "state:String leastSigBits:long lowWaterMark:long ongoingTxnSize:long recoverStartTime:long "
        "recoverEndTime:long"
    ),
    "TransactionMetadata": (
        "txnId:String status:String openTimestamp:long timeoutAt:long "
        "producedPartitions:Map<TransactionInBufferStats> "
        "ackedPartitions:Map<Map<TransactionInPendingAckStats>> owner:String"
    ),
    "TransactionInBufferStats": "startPosition:String aborted:boolean",
    "TransactionInPendingAckStats": "cumulativeAckPosition:String",
    "TransactionBufferStats": (
        "state:String maxReadPosition:String lastSnapshotTimestamps:long lowWaterMarks:Map<long> "
        "ongoingTxnSize:long recoverStartTime:long recoverEndTime:long totalAbortedTransactions:long "
        "snapshotType:String segmentsStats:Any"
    ),
    "TransactionPendingAckStats": (
        "state:String lowWaterMarks:Map<long> ongoingTxnSize:long recoverStartTime:long recoverEndTime:long"
    ),
    "AllocatorStats": (
        "numDirectArenas:int numHeapArenas:int numThreadLocalCaches:int normalCacheSize:int "
        "smallCacheSize:int usedDirectMemory:long usedHeapMemory:long directArenas:List<Any> "
        "heapArenas:List<Any>"
    ),
    "ProducerMessages": (
        "schemaVersion:long keySchema:String valueSchema:String producerName:String "
        "messages:List<ProducerMessage>"
    ),
    "ProducerMessage": (
        "payload:String properties:Map<String> context:String key:String replicationClusters:List<String> "
        "eventTime:String sequenceId:long disableReplication:boolean deliverAt:long deliverAfterMs:long "
        "schemaVersion:long keySchema:String valueSchema:String encryptionParam:String "
        "compressionType:CompressionType uncompressedMessageSize:int?"
    ),
    "ProducerAcks": "messagePublishResults:List<ProducerAck> schemaVersion:long",
    "ProducerAck": (
        "result:String errorMsg:String messageId:String context:String errorCode:int schemaVersion:long"
    ),
    "ClusterUrl": (
        "serviceUrl:String serviceUrlTls:String brokerServiceUrl:String brokerServiceUrlTls:String"
    ),
    "MessageId": (
        "ledgerId:long entryId:long partitionIndex:int batchIndex:int batchSize:int "
        "outstandingAcksInSameBatch:int originalBatchSize:int"
    ),
    "ResetCursorData": (
        "ledgerId:long entryId:long partitionIndex:int batchIndex:int excluded:boolean properties:Map<String>"
    ),
    "TopicClients": "producers:int consumers:int",
    "CompactionReport": (
        "status:String lastError:String explanation:String startedAt:long succeededAt:long failedAt:long "
        "durationMs:long removedMessages:long readBytes:long writtenBytes:long horizon:String? "
        "viewEntries:long viewBytes:long uncompactedBytes:long threshold:long holds:boolean"
    ),
    "Reason": "code:String text:String next:String stops:boolean since:String? data:Map",
    "ExplainedConsumer": (
        "consumerName:String address:String availablePermits:int unackedMessages:int heldBackBy:String? "
        "connectedSince:String? lastSent:String? lastAcked:String?"
    ),
    "ExplainedBroker": (
        "brokerId:String usage:double topics:int bundles:int bundlesOfNamespace:int draining:boolean "
        "allowed:boolean"
    ),
    "TopicExplanation": (
        "topic:String partitions:int namespaceBundles:int bundle:String broker:String? reasons:List<Reason> "
        "moves:List<Reason> brokers:List<ExplainedBroker>"
    ),
    "ExplainedBundleTopic": (
        "topic:String work:double msgRate:double byteRate:double producers:int consumers:int"
    ),
    "BundleExplanation": (
        "namespace:String bundle:String namespaceBundles:int broker:String? reasons:List<Reason> "
        "moves:List<Reason> brokers:List<ExplainedBroker> splits:List<Reason> "
        "topics:List<ExplainedBundleTopic> unreachable:String"
    ),
    "ExplainedFragment": "first:long last:long|null bookies:Map<String>",
    "LackingEntries": "first:long last:long|null copies:int",
    "RepairStep": "step:String first:long last:long bookie:String to:List<String>",
    "LedgerExplanation": (
        "ledgerId:long state:String topic:String kind:String keptBy:String created:String? closed:String? "
        "lastEntryId:long|null bytes:long|null ensembleSize:int writeQuorum:int ackQuorum:int "
        "fragments:List<ExplainedFragment> lacking:List<LackingEntries> steps:List<RepairStep> "
        "reasons:List<Reason>"
    ),
    "BookieExplanation": (
        "bookieId:String state:String address:String rack:String freeBytes:long totalBytes:long "
        "underReplicated:int reasons:List<Reason> unreachable:Map<String>"
    ),
    "ExplainedPolicy": "name:String level:String value:Any withoutTopic:Any withoutNamespace:Any",
    "PolicyExplanation": "topic:String policies:List<ExplainedPolicy>",
    "ExplainedLedger": (
        "ledgerId:long entries:long bytes:long closed:String? copies:List<String> code:String text:String "
        "next:String holders:List<String> bookiesUntil:String?"
    ),
    "StorageExplanation": (
        "topic:String bytes:long bytesOnBookies:long bytesByCode:Map<long> compactedViewBytes:long "
        "ledgers:List<ExplainedLedger> partitions:Map<StorageExplanation>"
    ),
    "PublishStep": "step:String milliseconds:double detail:String",
    "SlowPublish": (
        "time:String milliseconds:double producer:String address:String entries:int bytes:long "
        "messageId:String steps:List<PublishStep>"
    ),
    "PublishExplanation": (
        "topic:String windowSeconds:int slowMilliseconds:double reasons:List<Reason> "
        "publishes:List<SlowPublish> partitions:Map<PublishExplanation>"
    ),
    "ClientsExplanation": (
        "topic:String windowSeconds:int producers:int consumers:int reasons:List<Reason> "
        "partitions:Map<ClientsExplanation>"
    ),
    "ConnectionProducer": (
        "topic:String name:String connectedSince:String? unconfirmed:int messageRateIn:double"
    ),
    "ConnectionConsumer": (
        "topic:String subscription:String name:String connectedSince:String? availablePermits:int "
        "unackedMessages:int heldBackBy:String?"
    ),
    "ExplainedConnection": (
        "connectionId:long address:String connectedSince:String? role:String? originalRole:String? "
        "clientVersion:String read:boolean writable:boolean producers:List<ConnectionProducer> "
        "consumers:List<ConnectionConsumer>"
    ),
    "ConnectionsExplanation": (
        "asked:String windowSeconds:int open:int ended:int reasons:List<Reason> "
        "connections:List<ExplainedConnection>"
    ),
    "SubscriptionExplanation": (
        "topic:String subscription:String type:String moves:boolean reasons:List<Reason> backlog:long "
        "unackedMessages:long consumerCount:int consumers:List<ExplainedConsumer> "
        "partitions:Map<SubscriptionExplanation>"
    ),
    "Top": (
        "broker:String atMs:long of:String sort:String total:int offset:int rows:List<Map> "
        "unreachable:Map<String>"
    ),
    "TopicStatsPage": "total:int offset:int topics:Map<TopicStats>",
    "PartitionedTopicStats": (
        "msgRateIn:double msgThroughputIn:double msgRateOut:double msgThroughputOut:double "
        "bytesInCounter:long msgInCounter:long systemTopicBytesInCounter:long bytesOutCounter:long "
        "msgOutCounter:long bytesOutInternalCounter:long averageMsgSize:double msgChunkPublished:boolean "
        "storageSize:long backlogSize:long backlogQuotaLimitSize:long backlogQuotaLimitTime:long "
        "oldestBacklogMessageAgeSeconds:long oldestBacklogMessageSubscriptionName:String "
        "publishRateLimitedTimes:long earliestMsgPublishTimeInBacklogs:long offloadedStorageSize:long "
        "lastOffloadLedgerId:long lastOffloadSuccessTimeStamp:long lastOffloadFailureTimeStamp:long "
        "topicCreationTimeStamp:long lastPublishTimeStamp:long "
        "ongoingTxnCount:long abortedTxnCount:long committedTxnCount:long publishers:List<PublisherStats> "
        "waitingPublishers:int subscriptions:Map<SubscriptionStats> replication:Map<ReplicatorStats> "
        "deduplicationStatus:String topicEpoch:long nonContiguousDeletedMessagesRanges:int "
        "nonContiguousDeletedMessagesRangesSerializedSize:int delayedMessageIndexSizeInBytes:long "
        "compaction:CompactionStats ownerBroker:String metadata:PartitionedTopicMetadata "
        "partitions:Map<TopicStats>"
    ),
    "Metrics": "metrics:Map<Any> dimensions:Map<String>",
    "ResourceUsage": "usage:double limit:double",
    "NamespaceBundleStats": (
        "msgRateIn:double msgThroughputIn:double msgRateOut:double msgThroughputOut:double "
        "consumerCount:long producerCount:long topics:long cacheSize:long"
    ),
    "LoadReport": (
        "webServiceUrl:String pulsarServiceUrl:String persistentTopicsEnabled:boolean "
        "nonPersistentTopicsEnabled:boolean cpu:ResourceUsage memory:ResourceUsage "
        "directMemory:ResourceUsage bandwidthIn:ResourceUsage bandwidthOut:ResourceUsage "
        "msgThroughputIn:double msgThroughputOut:double msgRateIn:double msgRateOut:double "
        "lastUpdate:long lastStats:Map<NamespaceBundleStats> numTopics:long numBundles:long "
        "numConsumers:long numProducers:long bundles:List<String> lastBundleGains:List<String> "
        "lastBundleLosses:List<String> brokerVersionString:String protocols:Map<Any> "
        "advertisedListeners:Map<Any> loadManagerClassName:String startTimestamp:long "
        "maxResourceUsage:double loadReportType:String"
    ),
    "StoredLedger": (
        "ledgerId:long entries:long size:long timestamp:long isOffloaded:boolean offloadedContextUuid:String "
        "offloadedTo:OffloadedObjects"
    ),
    "OffloadedObjects": (
        "location:String path:String manifestSha256:String objectBytes:long openedTimestamp:long "
        "maxPublishTimestamp:long"
    ),
    "PositionInfo": "ledgerId:long entryId:long",
    "PositionRange": "from:PositionInfo to:PositionInfo",
    "CursorInfo": (
        "version:long creationDate:String modificationDate:String cursorsLedgerId:long "
        "markDelete:PositionInfo individualDeletedMessages:List<PositionRange>"
    ),
    "PostSchemaResponse": "version:LongSchemaVersion",
    "LongSchemaVersion": "version:long",
    "DeleteSchemaResponse": "version:long",
    "SchemaMetadata": "info:SchemaPosition index:List<SchemaPosition>",
    "SchemaPosition": "ledgerId:long entryId:long version:long",
    "TransactionLogStats": (
        "managedLedgerName:String managedLedgerInternalStats:PersistentTopicInternalStats"
    ),
    "TransactionCoordinatorInternalStats": "transactionLogStats:TransactionLogStats",
    "TransactionPendingAckInternalStats": "pendingAckLogStats:TransactionLogStats",
    "TransactionBufferInternalStats": (
        "snapshotType:String singleSnapshotSystemTopicInternalStats:TransactionLogStats "
        "segmentInternalStats:TransactionLogStats segmentIndexInternalStats:TransactionLogStats"
    ),
    "PositionInPendingAckStats": "state:String",
    "ResourceUnit": "",
    "PendingBookieOpsStats": "",
}
"""The members of each object; empty where they are not fixed."""


def inner_types(type_name: str) -> tuple[str, str]:
    """Returns the container of a type ('List', 'Set', 'Map') and its element type; '' for other types."""
    outer, bracket, inner = type_name.removesuffix(">").partition("<")
    if not bracket or not type_name.endswith(">"):
        return "", ""
    head, comma, value = inner.partition(",")
    # A comma after '<' belongs to the key of the element type.
    return outer, value.strip() if outer == "Map" and comma and "<" not in head else inner


def members_of(type_name: str) -> Iterator[tuple[str, str]]:
    """Yields the names and types of an object's members."""
    for member in OBJECTS[type_name].split():
        name, _, member_type = member.partition(":")
        yield name, member_type

// What the add-on of the npm package pulsar-client 1.15.0 uses of libpulsar 3.7.0, declared anew.
//
// The add-on is compiled against libpulsar's header files, which no package registry has; the library itself is in
// the wheel of PyPI's pulsar-client 3.7.0. Names, types and numbers below are the library's; what is not declared
// here the add-on does not use. `build.py` lets each header that the add-on includes lead here.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <utility>
#include <vector>

#define PULSAR_OPAQUE(NAME) typedef struct _pulsar_##NAME pulsar_##NAME##_t;

extern "C" {

PULSAR_OPAQUE(authentication)
PULSAR_OPAQUE(client)
PULSAR_OPAQUE(client_configuration)
PULSAR_OPAQUE(consumer)
PULSAR_OPAQUE(consumer_configuration)
PULSAR_OPAQUE(message)
PULSAR_OPAQUE(message_id)
PULSAR_OPAQUE(messages)
PULSAR_OPAQUE(producer)
PULSAR_OPAQUE(producer_configuration)
PULSAR_OPAQUE(reader)
PULSAR_OPAQUE(reader_configuration)
PULSAR_OPAQUE(string_list)
PULSAR_OPAQUE(string_map)
PULSAR_OPAQUE(topic_metadata)

// Numbers of the enumerations. The other results have text only (`pulsar_result_str`).
enum pulsar_result : int { pulsar_result_Ok };
enum pulsar_logger_level_t : int { pulsar_DEBUG, pulsar_INFO, pulsar_WARN, pulsar_ERROR };
enum initial_position : int { initial_position_latest, initial_position_earliest };
enum pulsar_consumer_type : int {
  pulsar_ConsumerExclusive, pulsar_ConsumerShared, pulsar_ConsumerFailover, pulsar_ConsumerKeyShared
};
enum pulsar_consumer_crypto_failure_action : int {
  pulsar_ConsumerFail, pulsar_ConsumerDiscard, pulsar_ConsumerConsume
};
enum pulsar_consumer_regex_subscription_mode : int {
  pulsar_consumer_regex_sub_mode_PersistentOnly,
  pulsar_consumer_regex_sub_mode_NonPersistentOnly,
  pulsar_consumer_regex_sub_mode_AllTopics
};
enum pulsar_partitions_routing_mode : int {
  pulsar_UseSinglePartition, pulsar_RoundRobinDistribution, pulsar_CustomPartition
};
enum pulsar_hashing_scheme : int { pulsar_Murmur3_32Hash, pulsar_BoostHash, pulsar_JavaStringHash };
enum pulsar_compression_type : int {
  pulsar_CompressionNone, pulsar_CompressionLZ4, pulsar_CompressionZLib, pulsar_CompressionZSTD,
  pulsar_CompressionSNAPPY
};
enum pulsar_producer_crypto_failure_action : int { pulsar_ProducerFail, pulsar_ProducerSend };
enum pulsar_producer_access_mode : int {
  pulsar_ProducerAccessModeShared,
  pulsar_ProducerAccessModeExclusive,
  pulsar_ProducerAccessModeWaitForExclusive,
  pulsar_ProducerAccessModeExclusiveWithFencing
};
enum pulsar_schema_type : int {
  pulsar_AutoPublish = -4, pulsar_AutoConsume = -3, pulsar_Bytes = -1, pulsar_None = 0, pulsar_String,
  pulsar_Json, pulsar_Protobuf, pulsar_Avro, pulsar_Boolean, pulsar_Int8, pulsar_Int16, pulsar_Int32,
  pulsar_Int64, pulsar_Float32, pulsar_Float64, pulsar_KeyValue = 15
};

// Structures that are handed over by address.
struct pulsar_logger_t {
  void *ctx;
  bool (*is_enabled)(pulsar_logger_level_t, void *);
  void (*log)(pulsar_logger_level_t, const char *file, int line, const char *message, void *);
};
struct pulsar_consumer_batch_receive_policy_t {
  int maxNumMessages;
  long maxNumBytes, timeoutMs;
};
struct pulsar_consumer_config_dead_letter_policy_t {
  const char *dead_letter_topic;
  int max_redeliver_count;
  const char *initial_subscription_name;
};

// Callbacks; the last argument of each is the `ctx` that came with it.
typedef void (*pulsar_result_callback)(pulsar_result, void *);
typedef void (*pulsar_message_listener)(pulsar_consumer_t *, pulsar_message_t *, void *);
typedef void (*pulsar_reader_listener)(pulsar_reader_t *, pulsar_message_t *, void *);
typedef int (*pulsar_message_router)(pulsar_message_t *, pulsar_topic_metadata_t *, void *);
#define PULSAR_THEN(TYPE) void (*callback)(pulsar_result, pulsar_##TYPE##_t *, void *), void *ctx
#define PULSAR_DONE pulsar_result_callback callback, void *ctx

const char *pulsar_result_str(pulsar_result);
int pulsar_topic_metadata_get_num_partitions(pulsar_topic_metadata_t *);

// Lists and maps of text.
int pulsar_string_list_size(pulsar_string_list_t *);
const char *pulsar_string_list_get(pulsar_string_list_t *, int);
pulsar_string_map_t *pulsar_string_map_create();
void pulsar_string_map_free(pulsar_string_map_t *);
int pulsar_string_map_size(pulsar_string_map_t *);
void pulsar_string_map_put(pulsar_string_map_t *, const char *key, const char *value);
const char *pulsar_string_map_get_key(pulsar_string_map_t *, int);
const char *pulsar_string_map_get_value(pulsar_string_map_t *, int);

// Authentication.
pulsar_authentication_t *pulsar_authentication_tls_create(const char *certificate, const char *key);
pulsar_authentication_t *pulsar_authentication_token_create(const char *token);
pulsar_authentication_t *pulsar_authentication_token_create_with_supplier(char *(*)(void *), void *ctx);
pulsar_authentication_t *pulsar_authentication_basic_create(const char *user, const char *password);
pulsar_authentication_t *pulsar_authentication_athenz_create(const char *parameters);
pulsar_authentication_t *pulsar_authentication_oauth2_create(const char *parameters);
void pulsar_authentication_free(pulsar_authentication_t *);

// Clients.
#define PULSAR_SET(NAME, ...) void pulsar_client_configuration_set_##NAME(pulsar_client_configuration_t *, __VA_ARGS__);
pulsar_client_configuration_t *pulsar_client_configuration_create();
void pulsar_client_configuration_free(pulsar_client_configuration_t *);
PULSAR_SET(auth, pulsar_authentication_t *)
PULSAR_SET(operation_timeout_seconds, int)
PULSAR_SET(io_threads, int)
PULSAR_SET(message_listener_threads, int)
PULSAR_SET(concurrent_lookup_request, int)
PULSAR_SET(logger_t, pulsar_logger_t)
PULSAR_SET(use_tls, int)
PULSAR_SET(tls_trust_certs_file_path, const char *)
PULSAR_SET(tls_allow_insecure_connection, int)
PULSAR_SET(validate_hostname, int)
PULSAR_SET(stats_interval_in_seconds, unsigned int)
PULSAR_SET(listener_name, const char *)
#undef PULSAR_SET
pulsar_client_t *pulsar_client_create(const char *url, const pulsar_client_configuration_t *);
void pulsar_client_free(pulsar_client_t *);
void pulsar_client_close_async(pulsar_client_t *, PULSAR_DONE);
void pulsar_client_create_producer_async(
    pulsar_client_t *, const char *topic, const pulsar_producer_configuration_t *, PULSAR_THEN(producer));
void pulsar_client_subscribe_async(pulsar_client_t *, const char *topic, const char *subscription,
                                   const pulsar_consumer_configuration_t *, PULSAR_THEN(consumer));
void pulsar_client_subscribe_multi_topics_async(pulsar_client_t *, const char **topics, int count,
                                                const char *subscription, const pulsar_consumer_configuration_t *,
                                                PULSAR_THEN(consumer));
void pulsar_client_subscribe_pattern_async(pulsar_client_t *, const char *pattern, const char *subscription,
                                           const pulsar_consumer_configuration_t *, PULSAR_THEN(consumer));
void pulsar_client_create_reader_async(pulsar_client_t *, const char *topic, const pulsar_message_id_t *start,
                                       pulsar_reader_configuration_t *, PULSAR_THEN(reader));
void pulsar_client_get_topic_partitions_async(pulsar_client_t *, const char *topic, PULSAR_THEN(string_list));

// Producers.
#define PULSAR_SET(NAME, ...) \
  void pulsar_producer_configuration_set_##NAME(pulsar_producer_configuration_t *, __VA_ARGS__);
pulsar_producer_configuration_t *pulsar_producer_configuration_create();
void pulsar_producer_configuration_free(pulsar_producer_configuration_t *);
PULSAR_SET(producer_name, const char *)
PULSAR_SET(send_timeout, int)
PULSAR_SET(initial_sequence_id, int64_t)
PULSAR_SET(max_pending_messages, int)
PULSAR_SET(max_pending_messages_across_partitions, int)
PULSAR_SET(block_if_queue_full, int)
PULSAR_SET(partitions_routing_mode, pulsar_partitions_routing_mode)
PULSAR_SET(message_router, pulsar_message_router, void *ctx)
PULSAR_SET(hashing_scheme, pulsar_hashing_scheme)
PULSAR_SET(compression_type, pulsar_compression_type)
PULSAR_SET(batching_enabled, int)
PULSAR_SET(batching_max_messages, unsigned int)
PULSAR_SET(batching_max_allowed_size_in_bytes, unsigned long)
PULSAR_SET(batching_max_publish_delay_ms, unsigned long)
PULSAR_SET(chunking_enabled, int)
PULSAR_SET(access_mode, pulsar_producer_access_mode)
PULSAR_SET(schema_info, pulsar_schema_type, const char *name, const char *schema, pulsar_string_map_t *)
PULSAR_SET(property, const char *name, const char *value)
PULSAR_SET(default_crypto_key_reader, const char *public_key, const char *private_key)
PULSAR_SET(encryption_key, const char *)
PULSAR_SET(crypto_failure_action, pulsar_producer_crypto_failure_action)
#undef PULSAR_SET
void pulsar_producer_free(pulsar_producer_t *);
const char *pulsar_producer_get_topic(pulsar_producer_t *);
const char *pulsar_producer_get_producer_name(pulsar_producer_t *);
int pulsar_producer_is_connected(pulsar_producer_t *);
void pulsar_producer_send_async(pulsar_producer_t *, pulsar_message_t *, PULSAR_THEN(message_id));
void pulsar_producer_flush_async(pulsar_producer_t *, PULSAR_DONE);
void pulsar_producer_close_async(pulsar_producer_t *, PULSAR_DONE);

// Consumers; the library names its settings in three ways.
#define PULSAR_SET(NAME, ...) void pulsar_##NAME(pulsar_consumer_configuration_t *, __VA_ARGS__);
pulsar_consumer_configuration_t *pulsar_consumer_configuration_create();
void pulsar_consumer_configuration_free(pulsar_consumer_configuration_t *);
PULSAR_SET(configure_set_negative_ack_redelivery_delay_ms, long)
PULSAR_SET(consumer_set_consumer_name, const char *)
PULSAR_SET(consumer_set_max_total_receiver_queue_size_across_partitions, int)
PULSAR_SET(consumer_set_read_compacted, int)
PULSAR_SET(consumer_set_subscription_initial_position, initial_position)
PULSAR_SET(consumer_set_unacked_messages_timeout_ms, uint64_t)
PULSAR_SET(consumer_configuration_set_consumer_type, pulsar_consumer_type)
PULSAR_SET(consumer_configuration_set_receiver_queue_size, int)
PULSAR_SET(consumer_configuration_set_message_listener, pulsar_message_listener, void *ctx)
PULSAR_SET(consumer_configuration_set_schema_info, pulsar_schema_type, const char *name, const char *schema,
           pulsar_string_map_t *)
PULSAR_SET(consumer_configuration_set_property, const char *name, const char *value)
PULSAR_SET(consumer_configuration_set_default_crypto_key_reader, const char *public_key, const char *private_key)
PULSAR_SET(consumer_configuration_set_crypto_failure_action, pulsar_consumer_crypto_failure_action)
PULSAR_SET(consumer_configuration_set_max_pending_chunked_message, int)
PULSAR_SET(consumer_configuration_set_auto_ack_oldest_chunked_message_on_queue_full, int)
PULSAR_SET(consumer_configuration_set_batch_index_ack_enabled, int)
PULSAR_SET(consumer_configuration_set_regex_subscription_mode, pulsar_consumer_regex_subscription_mode)
PULSAR_SET(consumer_configuration_set_dlq_policy, const pulsar_consumer_config_dead_letter_policy_t *)
int pulsar_consumer_configuration_set_batch_receive_policy(
    pulsar_consumer_configuration_t *, const pulsar_consumer_batch_receive_policy_t *);
#undef PULSAR_SET
void pulsar_consumer_free(pulsar_consumer_t *);
const char *pulsar_consumer_get_topic(pulsar_consumer_t *);
const char *pulsar_consumer_get_subscription_name(pulsar_consumer_t *);
int pulsar_consumer_is_connected(pulsar_consumer_t *);
pulsar_result pulsar_consumer_receive(pulsar_consumer_t *, pulsar_message_t **);
pulsar_result pulsar_consumer_receive_with_timeout(pulsar_consumer_t *, pulsar_message_t **, int milliseconds);
void pulsar_consumer_receive_async(pulsar_consumer_t *, PULSAR_THEN(message));
void pulsar_consumer_batch_receive_async(pulsar_consumer_t *, PULSAR_THEN(messages));
void pulsar_consumer_acknowledge_async(pulsar_consumer_t *, pulsar_message_t *, PULSAR_DONE);
void pulsar_consumer_acknowledge_async_id(pulsar_consumer_t *, pulsar_message_id_t *, PULSAR_DONE);
void pulsar_consumer_acknowledge_cumulative_async(pulsar_consumer_t *, pulsar_message_t *, PULSAR_DONE);
void pulsar_consumer_acknowledge_cumulative_async_id(pulsar_consumer_t *, pulsar_message_id_t *, PULSAR_DONE);
void pulsar_consumer_negative_acknowledge(pulsar_consumer_t *, pulsar_message_t *);
void pulsar_consumer_negative_acknowledge_id(pulsar_consumer_t *, pulsar_message_id_t *);
pulsar_result pulsar_consumer_pause_message_listener(pulsar_consumer_t *);
void pulsar_consumer_seek_async(pulsar_consumer_t *, pulsar_message_id_t *, PULSAR_DONE);
void pulsar_consumer_seek_by_timestamp_async(pulsar_consumer_t *, uint64_t milliseconds, PULSAR_DONE);
void pulsar_consumer_unsubscribe_async(pulsar_consumer_t *, PULSAR_DONE);
void pulsar_consumer_close_async(pulsar_consumer_t *, PULSAR_DONE);

// Readers.
#define PULSAR_SET(NAME, ...) void pulsar_reader_configuration_set_##NAME(pulsar_reader_configuration_t *, __VA_ARGS__);
pulsar_reader_configuration_t *pulsar_reader_configuration_create();
void pulsar_reader_configuration_free(pulsar_reader_configuration_t *);
PULSAR_SET(reader_name, const char *)
PULSAR_SET(subscription_role_prefix, const char *)
PULSAR_SET(receiver_queue_size, int)
PULSAR_SET(read_compacted, int)
PULSAR_SET(reader_listener, pulsar_reader_listener, void *ctx)
PULSAR_SET(default_crypto_key_reader, const char *public_key, const char *private_key)
PULSAR_SET(crypto_failure_action, pulsar_consumer_crypto_failure_action)
#undef PULSAR_SET
void pulsar_reader_free(pulsar_reader_t *);
int pulsar_reader_is_connected(pulsar_reader_t *);
pulsar_result pulsar_reader_has_message_available(pulsar_reader_t *, int *available);
pulsar_result pulsar_reader_read_next(pulsar_reader_t *, pulsar_message_t **);
pulsar_result pulsar_reader_read_next_with_timeout(pulsar_reader_t *, pulsar_message_t **, int milliseconds);
void pulsar_reader_seek_async(pulsar_reader_t *, pulsar_message_id_t *, PULSAR_DONE);
void pulsar_reader_seek_by_timestamp_async(pulsar_reader_t *, uint64_t milliseconds, PULSAR_DONE);
void pulsar_reader_close_async(pulsar_reader_t *, PULSAR_DONE);

// Messages.
#define PULSAR_GET(TYPE, NAME) TYPE pulsar_message_get_##NAME(pulsar_message_t *);
#define PULSAR_SET(NAME, ...) void pulsar_message_set_##NAME(pulsar_message_t *, __VA_ARGS__);
pulsar_message_t *pulsar_message_create();
void pulsar_message_copy(const pulsar_message_t *from, pulsar_message_t *to);
void pulsar_message_free(pulsar_message_t *);
void pulsar_message_disable_replication(pulsar_message_t *, int);
PULSAR_SET(content, const void *, size_t)
PULSAR_SET(property, const char *name, const char *value)
PULSAR_SET(partition_key, const char *)
PULSAR_SET(ordering_key, const char *)
PULSAR_SET(event_timestamp, uint64_t)
PULSAR_SET(sequence_id, int64_t)
PULSAR_SET(deliver_after, uint64_t)
PULSAR_SET(deliver_at, uint64_t)
PULSAR_SET(replication_clusters, const char **, size_t)
PULSAR_GET(const void *, data)
PULSAR_GET(uint32_t, length)
PULSAR_GET(pulsar_string_map_t *, properties)
PULSAR_GET(pulsar_message_id_t *, message_id)
PULSAR_GET(const char *, partitionKey)
PULSAR_GET(const char *, orderingKey)
PULSAR_GET(const char *, topic_name)
PULSAR_GET(uint64_t, publish_timestamp)
PULSAR_GET(uint64_t, event_timestamp)
PULSAR_GET(int, redelivery_count)
#undef PULSAR_GET
#undef PULSAR_SET
size_t pulsar_messages_size(pulsar_messages_t *);
pulsar_message_t *pulsar_messages_get(pulsar_messages_t *, size_t);
void pulsar_messages_free(pulsar_messages_t *);
const pulsar_message_id_t *pulsar_message_id_earliest();
const pulsar_message_id_t *pulsar_message_id_latest();
pulsar_message_id_t *pulsar_message_id_deserialize(const void *, uint32_t length);
void *pulsar_message_id_serialize(pulsar_message_id_t *, int *length);
char *pulsar_message_id_str(pulsar_message_id_t *);
void pulsar_message_id_free(pulsar_message_id_t *);
}

// The few C++ classes. The library constructs those that the C structures contain; each holds one shared pointer.
namespace pulsar {

enum KeySharedMode : int { AUTO_SPLIT, STICKY };
typedef std::vector<std::pair<int, int>> StickyRanges;

struct KeySharedPolicy {
  KeySharedPolicy();
  KeySharedPolicy(const KeySharedPolicy &);
  ~KeySharedPolicy();
  KeySharedPolicy &setKeySharedMode(KeySharedMode);
  KeySharedPolicy &setAllowOutOfOrderDelivery(bool);
  KeySharedPolicy &setStickyRanges(const StickyRanges &);

 private:
  std::shared_ptr<void> held;
};

struct ClientConfiguration {
  ClientConfiguration &setConnectionTimeout(int milliseconds);
};

struct ConsumerConfiguration {
  ConsumerConfiguration &setKeySharedPolicy(KeySharedPolicy);
};

struct ProducerConfiguration {
  enum BatchingType : int { DefaultBatching, KeyBasedBatching };
  ProducerConfiguration &setBatchingType(BatchingType);
};

}  // namespace pulsar

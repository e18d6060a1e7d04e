"""Exchanges about connections, lookups, lists of topics and schemas."""

from __future__ import annotations

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.raw.exchange import AVRO_SCHEMA, Exchange, ask, schema

# Connecting


def connect(x: Exchange) -> None:
    x.bare().connect()


def connect_with_all_feature_flags(x: Exchange) -> None:
    flags = {field.name: True for field in pb.FeatureFlags.DESCRIPTOR.fields}
    x.bare().connect(feature_flags=flags)


def connect_without_a_protocol_version(x: Exchange) -> None:
    line = x.bare()
    line.send("connect", client_version="raw")
    line.expect("connected")


def connect_with_an_old_protocol_version(x: Exchange) -> None:
    x.bare().connect(protocol_version=6)


def ping(x: Exchange) -> None:
    line = x.recorded()
    line.send("ping")
    line.receive()


def a_first_command_that_is_no_connect(x: Exchange) -> None:
    line = x.bare()
    line.send("lookupTopic", topic=x.topic, request_id=1)
    x.until_quiet(line)


# Lookup


def look_up(x: Exchange) -> None:
    ask(x, "lookupTopic", topic=x.topic)


def look_up_authoritatively(x: Exchange) -> None:
    ask(x, "lookupTopic", topic=x.topic, authoritative=True)


def look_up_a_non_persistent_topic(x: Exchange) -> None:
    ask(x, "lookupTopic", topic=x.topic.replace("persistent:", "non-persistent:"))


def look_up_in_a_namespace_that_is_not_there(x: Exchange) -> None:
    ask(x, "lookupTopic", topic=f"persistent://public/{x.short_name}/t")


def look_up_in_a_tenant_that_is_not_there(x: Exchange) -> None:
    ask(x, "lookupTopic", topic=f"persistent://{x.short_name}/ns/t")


def look_up_a_name_that_is_none(x: Exchange) -> None:
    ask(x, "lookupTopic", topic="persistent://a")


def look_up_by_a_listener_that_is_not_there(x: Exchange) -> None:
    ask(x, "lookupTopic", topic=x.topic, advertised_listener_name="elsewhere")


def partitions_of_a_topic_that_is_not_there(x: Exchange) -> None:
    ask(x, "partitionMetadata", topic=x.topic)


def partitions_of_a_topic_that_is_not_there_without_creating_it(x: Exchange) -> None:
    ask(x, "partitionMetadata", topic=x.topic, metadata_auto_creation_enabled=False)


def partitions_of_a_topic_without(x: Exchange) -> None:
    x.rest.do("PUT", x.path)
    ask(x, "partitionMetadata", topic=x.topic)


def partitions(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 3)
    ask(x, "partitionMetadata", topic=x.topic)


def partitions_of_a_partition(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 3)
    ask(x, "partitionMetadata", topic=f"{x.topic}-partition-0")


def partitions_in_a_namespace_that_is_not_there(x: Exchange) -> None:
    ask(x, "partitionMetadata", topic=f"persistent://public/{x.short_name}/t")


def partitions_of_a_name_that_is_none(x: Exchange) -> None:
    ask(x, "partitionMetadata", topic="persistent://a")


# Topics and schemas


def topics_of_a_namespace(x: Exchange) -> None:
    namespace = x.rest.new_namespace()
    x.aside().open_producer(x.look_up_first(f"persistent://{namespace}/one"))
    ask(x, "getTopicsOfNamespace", namespace=namespace)


def topics_of_a_namespace_by_a_pattern(x: Exchange) -> None:
    namespace = x.rest.new_namespace()
    x.aside().open_producer(x.look_up_first(f"persistent://{namespace}/one"))
    x.aside().open_producer(x.look_up_first(f"persistent://{namespace}/two"))
    ask(x, "getTopicsOfNamespace", namespace=namespace, topics_pattern=f"persistent://{namespace}/o.*")


def topics_of_a_namespace_that_did_not_change(x: Exchange) -> None:
    namespace = x.rest.new_namespace()
    x.aside().open_producer(x.look_up_first(f"persistent://{namespace}/one"))
    aside = x.aside()
    pattern = f"persistent://{namespace}/.*"
    aside.request("getTopicsOfNamespace", namespace=namespace, topics_pattern=pattern)
    known = aside.receive().command.topics_hash
    ask(x, "getTopicsOfNamespace", namespace=namespace, topics_pattern=pattern, topics_hash=known)


def topics_of_an_empty_namespace(x: Exchange) -> None:
    ask(x, "getTopicsOfNamespace", namespace=x.rest.new_namespace())


def topics_of_a_namespace_that_is_not_there(x: Exchange) -> None:
    ask(x, "getTopicsOfNamespace", namespace=f"public/{x.short_name}")


def topics_of_a_name_that_is_none(x: Exchange) -> None:
    ask(x, "getTopicsOfNamespace", namespace="a/b/c/d")


def watch_topics(x: Exchange) -> None:
    namespace = x.rest.new_namespace()
    x.aside().open_producer(x.look_up_first(f"persistent://{namespace}/one"))
    line = x.recorded(feature_flags={"supports_topic_watchers": True})
    line.request(
        "watchTopicList",
        watcher_id=1,
        namespace=namespace,
        topics_pattern=f"persistent://{namespace}/(one|two)",
    )
    line.expect("watchTopicListSuccess")
    x.aside().open_producer(x.look_up_first(f"persistent://{namespace}/two"))
    line.expect("watchTopicUpdate")
    line.request("watchTopicListClose", watcher_id=1)
    line.expect("success")


def watch_topics_by_a_pattern_that_is_none(x: Exchange) -> None:
    namespace = x.rest.new_namespace()
    ask(x, "watchTopicList", watcher_id=1, namespace=namespace, topics_pattern="persistent://a/b/(")


def schema_of_a_topic(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))
    ask(x, "getSchema", topic=x.topic)


def schema_of_a_topic_by_its_version(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))
    ask(x, "getSchema", topic=x.topic, schema_version=bytes(8))


def schema_of_a_topic_by_an_empty_version(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))
    ask(x, "getSchema", topic=x.topic, schema_version=b"")


def schema_of_type_string(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("String"))
    ask(x, "getSchema", topic=x.topic)


def schema_with_properties(x: Exchange) -> None:
    with_properties = {**schema("Json", AVRO_SCHEMA), "properties": [{"key": "k", "value": "v"}]}
    x.aside().open_producer(x.topic, schema=with_properties)
    ask(x, "getSchema", topic=x.topic)


def schema_of_a_topic_without(x: Exchange) -> None:
    x.aside().open_producer(x.topic)
    ask(x, "getSchema", topic=x.topic)


def schema_by_a_version_that_is_not_there(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))
    ask(x, "getSchema", topic=x.topic, schema_version=(7).to_bytes(8))


def create_a_schema(x: Exchange) -> None:
    x.aside().open_producer(x.topic)
    ask(x, "getOrCreateSchema", topic=x.topic, schema=schema("Avro", AVRO_SCHEMA))


def create_a_schema_that_is_there(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))
    ask(x, "getOrCreateSchema", topic=x.topic, schema=schema("Avro", AVRO_SCHEMA))


def create_a_schema_of_a_topic_that_is_not_loaded(x: Exchange) -> None:
    ask(x, "getOrCreateSchema", topic=x.topic, schema=schema("Avro", AVRO_SCHEMA))

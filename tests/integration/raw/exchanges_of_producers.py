"""Exchanges of producers: opening, sending, closing."""

from __future__ import annotations

import time

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.raw.exchange import AVRO_SCHEMA, Exchange, ask, deduplicate, schema
from tests.integration.raw.transcript import batch_payload, payload_frame

# Producing


def producer(x: Exchange) -> None:
    x.recorded().open_producer(x.topic)


def producer_with_a_name(x: Exchange) -> None:
    x.recorded().open_producer(x.topic, producer_name=x.short_name)


def producer_with_a_schema(x: Exchange) -> None:
    x.recorded().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))


def producer_with_a_schema_that_is_there(x: Exchange) -> None:
    x.aside().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))
    x.recorded().open_producer(x.topic, schema=schema("Avro", AVRO_SCHEMA))


def producer_with_schema_type_string(x: Exchange) -> None:
    x.recorded().open_producer(x.topic, schema=schema("String"))


def producer_of_a_partition(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 2)
    x.recorded().open_producer(f"{x.topic}-partition-1")


def producer_with_an_initial_subscription(x: Exchange) -> None:
    x.recorded().open_producer(x.topic, initial_subscription_name="first")


def producer_of_a_non_persistent_topic(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic.replace("persistent:", "non-persistent:"))
    line.send_bytes(payload_frame(1, 0, b"x"))
    line.expect("send_receipt")


def producer_with_a_name_in_use(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic, producer_id=1, producer_name="taken")
    line.ask_producer(x.topic, producer_id=2, producer_name="taken")
    x.until_quiet(line)


def producer_opened_twice(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.ask_producer(x.topic)
    x.until_quiet(line)


def producer_in_a_namespace_that_is_not_there(x: Exchange) -> None:
    ask(x, "producer", topic=f"persistent://public/{x.short_name}/t", producer_id=1)


def producer_of_a_name_that_is_none(x: Exchange) -> None:
    ask(x, "producer", topic="persistent://a", producer_id=1)


def producer_of_a_partition_beyond_the_last(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 2)
    ask(x, "producer", topic=f"{x.topic}-partition-7", producer_id=1)


def producer_of_a_partitioned_topic_itself(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 2)
    ask(x, "producer", topic=x.topic, producer_id=1)


def producer_of_a_terminated_topic(x: Exchange) -> None:
    x.rest.do("PUT", x.path)
    x.rest.call("POST", f"{x.path}/terminate")
    ask(x, "producer", topic=x.topic, producer_id=1)


def producer_exclusive(x: Exchange) -> None:
    x.recorded().open_producer(x.topic, producer_access_mode="Exclusive")


def producer_exclusive_beside_another(x: Exchange) -> None:
    x.aside().open_producer(x.topic)
    ask(x, "producer", topic=x.topic, producer_id=1, producer_access_mode="Exclusive")


def producer_shared_beside_an_exclusive_one(x: Exchange) -> None:
    x.aside().open_producer(x.topic, producer_access_mode="Exclusive")
    ask(x, "producer", topic=x.topic, producer_id=1)


def producer_that_waits_for_exclusive(x: Exchange) -> None:
    holder = x.aside()
    holder.open_producer(x.topic, producer_access_mode="Exclusive")
    line = x.recorded()
    line.ask_producer(x.topic, producer_access_mode="WaitForExclusive")
    line.expect("producer_success")
    holder.close()
    line.expect("producer_success")


def producer_fenced_by_another(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic, producer_access_mode="Exclusive")
    x.aside().open_producer(x.topic, producer_access_mode="ExclusiveWithFencing")
    x.until_quiet(line)


def producer_with_an_epoch_that_is_over(x: Exchange) -> None:
    first = x.aside()
    first.open_producer(x.topic, producer_access_mode="Exclusive")
    first.close()
    time.sleep(x.quiet_s)
    second = x.aside()
    second.open_producer(x.topic, producer_access_mode="Exclusive")
    second.close()
    time.sleep(x.quiet_s)
    ask(x, "producer", topic=x.topic, producer_id=1, producer_access_mode="Exclusive", topic_epoch=0)


def close_producer(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.request("close_producer", producer_id=1)
    line.expect("success")


def close_producer_that_is_not_there(x: Exchange) -> None:
    ask(x, "close_producer", producer_id=9)


def send(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.publish(b"one")


def send_a_batch(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.publish_batch([b"one", b"two", b"three"])


def send_a_duplicate(x: Exchange) -> None:
    x.rest.do("PUT", x.path)
    deduplicate(x)
    line = x.recorded()
    line.open_producer(x.topic, producer_name="same")
    line.publish(b"one")
    line.publish(b"one")


def producer_again_with_deduplication(x: Exchange) -> None:
    x.rest.do("PUT", x.path)
    deduplicate(x)
    first = x.aside()
    first.open_producer(x.topic, producer_name="same")
    first.publish(b"one", b"two", b"three")
    first.request("close_producer", producer_id=1)
    first.expect("success")
    x.recorded().open_producer(x.topic, producer_name="same")


def send_with_a_wrong_checksum(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.send_bytes(payload_frame(1, 0, b"damaged", checksum_xor=1))
    x.until_quiet(line)


def send_to_a_producer_that_is_not_there(x: Exchange) -> None:
    line = x.recorded()
    line.send_bytes(payload_frame(7, 0, b"x"))
    x.until_quiet(line)


def send_in_the_clear_where_encryption_is_required(x: Exchange) -> None:
    namespace = x.rest.new_namespace()
    x.rest.do("POST", f"/namespaces/{namespace}/encryptionRequired", True)
    line = x.recorded()
    line.ask_producer(x.look_up_first(f"persistent://{namespace}/t"))
    x.until_quiet(line)


def topic_terminated_under_a_producer_and_a_consumer(x: Exchange) -> None:
    line = x.flowing()
    line.publish(b"last")
    position = line.expect("message").position
    x.rest.call("POST", f"{x.path}/terminate")
    x.until_quiet(line)
    line.ack(position, receipt=False)
    x.until_quiet(line, 2.0)


def topic_unloaded_under_a_producer_and_a_consumer(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.subscribe(x.topic)
    x.rest.do("PUT", f"{x.path}/unload")
    x.until_quiet(line)


def topic_deleted_under_a_producer_and_a_consumer(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.subscribe(x.topic)
    x.rest.do("DELETE", f"{x.path}?force=true")
    x.until_quiet(line)


def receipt_of_a_batch_payload(x: Exchange) -> None:
    """A batch whose Send does not say its highest sequence id, as old clients send it."""
    line = x.recorded()
    line.open_producer(x.topic)
    metadata = pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, num_messages_in_batch=2)
    line.send_bytes(payload_frame(1, 0, batch_payload([b"a", b"b"]), metadata, num_messages=2))
    line.expect("send_receipt")

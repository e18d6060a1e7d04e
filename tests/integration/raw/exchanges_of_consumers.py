"""Exchanges of consumers: messages, acknowledgements, seeks, statistics."""

from __future__ import annotations

from tests.integration.raw.exchange import Exchange, ask
from tests.integration.raw.transcript import message_id, payload_frame


def message(x: Exchange) -> None:
    line = x.flowing()
    line.publish(b"one")
    line.expect("message")


def message_of_a_partition(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 2)
    line = x.recorded()
    line.open_producer(f"{x.topic}-partition-1")
    line.subscribe(f"{x.topic}-partition-1")
    line.flow(10)
    line.publish(b"one")
    line.expect("message")


def message_of_a_non_persistent_topic(x: Exchange) -> None:
    topic = x.topic.replace("persistent:", "non-persistent:")
    line = x.recorded()
    line.open_producer(topic)
    line.subscribe(topic)
    line.flow(10)
    line.send_bytes(payload_frame(1, 0, b"one"))
    x.until_quiet(line)


def batch(x: Exchange) -> None:
    line = x.flowing()
    line.publish_batch([b"one", b"two", b"three"])
    line.expect("message")


def message_delivered_again(x: Exchange) -> None:
    line = x.flowing(subType="Shared")
    line.publish(b"one")
    position = line.expect("message").position
    line.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id(position)])
    line.expect("message")


def batch_delivered_again_in_part(x: Exchange) -> None:
    line = x.flowing(subType="Shared")
    line.publish_batch([b"one", b"two", b"three"])
    position = line.expect("message").position
    line.ack(position, ack_set=[0b101])
    line.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id(position)])
    line.expect("message")


def all_delivered_again_with_a_consumer_epoch(x: Exchange) -> None:
    line = x.flowing(consumer_epoch=0)
    line.publish(b"one")
    line.expect("message")
    line.send("redeliverUnacknowledgedMessages", consumer_id=1, consumer_epoch=1)
    line.expect("message")


def ack_with_a_receipt(x: Exchange) -> None:
    line = x.flowing()
    line.publish(b"one")
    line.ack(line.expect("message").position)


def ack_cumulatively_with_a_receipt(x: Exchange) -> None:
    line = x.flowing()
    line.publish(b"one", b"two")
    line.expect("message")
    line.ack(line.expect("message").position, cumulative=True)


def ack_cumulatively_on_a_shared_subscription(x: Exchange) -> None:
    line = x.flowing(subType="Shared")
    line.publish(b"one", b"two")
    line.expect("message")
    line.ack(line.expect("message").position, cumulative=True)


def ack_for_a_consumer_that_is_not_there(x: Exchange) -> None:
    line = x.recorded()
    line.request("ack", consumer_id=8, ack_type="Individual", message_id=[message_id((1, 1))])
    x.until_quiet(line)


def flow_for_a_consumer_that_is_not_there(x: Exchange) -> None:
    line = x.recorded()
    line.flow(5, consumer_id=8)
    x.until_quiet(line)


def close_consumer(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic)
    line.request("close_consumer", consumer_id=1)
    line.expect("success")


def close_consumer_that_is_not_there(x: Exchange) -> None:
    ask(x, "close_consumer", consumer_id=9)


def unsubscribe(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic)
    line.request("unsubscribe", consumer_id=1)
    x.until_quiet(line)


def unsubscribe_beside_another_consumer(x: Exchange) -> None:
    x.aside().subscribe(x.topic, subType="Shared")
    line = x.recorded()
    line.subscribe(x.topic, subType="Shared")
    line.request("unsubscribe", consumer_id=1)
    x.until_quiet(line)


def unsubscribe_a_consumer_that_is_not_there(x: Exchange) -> None:
    ask(x, "unsubscribe", consumer_id=9)


def seek_to_an_id(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    position, *_ = line.publish(b"one", b"two")
    line.subscribe(x.topic)
    line.request("seek", consumer_id=1, message_id=message_id(position))
    x.until_quiet(line)


def seek_to_a_time(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.publish(b"one")
    line.subscribe(x.topic)
    line.request("seek", consumer_id=1, message_publish_time=1_000)
    x.until_quiet(line)


def seek_to_nothing(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic)
    line.request("seek", consumer_id=1)
    x.until_quiet(line)


def seek_of_a_consumer_that_is_not_there(x: Exchange) -> None:
    ask(x, "seek", consumer_id=9, message_publish_time=1_000)


def seek_on_a_non_persistent_topic(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic.replace("persistent:", "non-persistent:"))
    line.request("seek", consumer_id=1, message_publish_time=1_000)
    x.until_quiet(line)


def last_message_id_of_an_empty_topic(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic)
    line.request("getLastMessageId", consumer_id=1)
    line.expect("getLastMessageIdResponse")


def last_message_id(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.subscribe(x.topic)
    line.publish(b"one", b"two")
    line.request("getLastMessageId", consumer_id=1)
    line.expect("getLastMessageIdResponse")


def last_message_id_in_a_batch(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.subscribe(x.topic)
    line.publish_batch([b"one", b"two", b"three"])
    line.request("getLastMessageId", consumer_id=1)
    line.expect("getLastMessageIdResponse")


def last_message_id_after_everything_is_acknowledged(x: Exchange) -> None:
    line = x.flowing()
    line.publish(b"one", b"two")
    line.expect("message")
    line.ack(line.expect("message").position, cumulative=True)
    line.request("getLastMessageId", consumer_id=1)
    line.expect("getLastMessageIdResponse")


def last_message_id_of_a_partition(x: Exchange) -> None:
    x.rest.do("PUT", f"{x.path}/partitions", 2)
    line = x.recorded()
    line.open_producer(f"{x.topic}-partition-1")
    line.subscribe(f"{x.topic}-partition-1")
    line.publish(b"one")
    line.request("getLastMessageId", consumer_id=1)
    line.expect("getLastMessageIdResponse")


def last_message_id_without_a_cursor(x: Exchange) -> None:
    line = x.recorded()
    line.open_producer(x.topic)
    line.publish(b"one", b"two")
    line.subscribe(x.topic, durable=False)
    line.request("getLastMessageId", consumer_id=1)
    line.expect("getLastMessageIdResponse")


def last_message_id_of_a_non_persistent_topic(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic.replace("persistent:", "non-persistent:"))
    line.request("getLastMessageId", consumer_id=1)
    x.until_quiet(line)


def last_message_id_for_a_consumer_that_is_not_there(x: Exchange) -> None:
    ask(x, "getLastMessageId", consumer_id=9)


def consumer_stats(x: Exchange) -> None:
    line = x.recorded()
    line.subscribe(x.topic, consumer_name="named")
    line.request("consumerStats", consumer_id=1)
    line.expect("consumerStatsResponse")


def consumer_stats_of_a_consumer_that_is_not_there(x: Exchange) -> None:
    ask(x, "consumerStats", consumer_id=9)

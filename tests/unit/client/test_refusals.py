"""The next steps that errors of refused requests name."""

from __future__ import annotations

from magnetar.client.errors import TopicNotFound, refusal
from magnetar.common.wire.pulsar_pb2 import ServerError


def test_a_partition_beyond_the_last_is_not_to_be_created() -> None:
    topic = "persistent://public/default/orders"
    error = refusal(ServerError.TopicNotFound, "it does not exist", f"{topic}-partition-9")
    assert isinstance(error, TopicNotFound)
    assert "topics create" not in str(error)
    assert "`magnetar admin topics list-partitioned-topics public/default` lists topics" in str(error)


def test_a_topic_that_is_missing_can_be_created() -> None:
    error = refusal(ServerError.TopicNotFound, "it does not exist", "persistent://public/default/orders")
    assert str(error).endswith("create it: magnetar admin topics create")

"""Names and properties of clients have bounds, counted in bytes."""

from __future__ import annotations

import pytest
from magnetar.broker.handlers.name_limits import (
    NAME_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    checked_name,
    checked_properties,
)
from magnetar.common.errors import InvalidName, NotAllowed
from magnetar.common.wire.pulsar_pb2 import KeyValue


def test_a_name_is_bounded_in_utf8() -> None:
    longest = "é" * (NAME_BYTES_MAX // 2)
    assert checked_name("consumer", longest) == longest
    with pytest.raises(InvalidName, match="consumer"):
        checked_name("consumer", longest + "x")


def test_last_value_of_a_repeated_key_counts() -> None:
    given = [KeyValue(key="a", value="1"), KeyValue(key="b", value=""), KeyValue(key="a", value="2")]
    assert checked_properties("producer", given) == {"a": "2", "b": ""}


def test_properties_are_bounded_together() -> None:
    half = PROPERTIES_BYTES_MAX // 2
    given = [KeyValue(key="a", value="v" * (half - 1)), KeyValue(key="b", value="v" * (half - 1))]
    assert len(checked_properties("producer", given)) == 2
    with pytest.raises(NotAllowed, match="producer"):
        checked_properties("producer", [*given, KeyValue(key="c", value="")])

"""The bound of unconfirmed bytes."""

from __future__ import annotations

import pytest
from magnetar.client.errors import MemoryLimitReached
from magnetar.client.memory import MemoryLimit


def test_the_last_message_may_exceed_the_limit_and_the_next_one_is_refused() -> None:
    memory = MemoryLimit(100)
    memory.take(99)
    assert memory.has_room
    memory.take(1_000)
    assert not memory.has_room
    with pytest.raises(MemoryLimitReached, match="take 1099 bytes, the client may use 100"):
        memory.take(1)
    assert memory.used_bytes == 1_099


def test_without_a_limit_there_is_always_room() -> None:
    memory = MemoryLimit(0)
    memory.take(10**12)
    assert memory.has_room


def test_who_waits_is_woken_once_when_there_is_room() -> None:
    memory = MemoryLimit(100)
    woken: list[str] = []
    memory.take(60)
    memory.take(60)
    memory.when_released("one", lambda: woken.append("one"))
    memory.when_released("two", lambda: woken.append("two"))
    memory.when_released("two", lambda: woken.append("two again"))
    memory.release(10)
    assert woken == []
    memory.release(60)
    memory.release(50)
    assert woken == ["one", "two again"]

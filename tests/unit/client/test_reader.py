"""Readers and table views: where they begin, what they have still to read, and where they go on."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.client.errors import Closed, OperationTimeout
from magnetar.client.messages import MessageId
from magnetar.client.reader import Reader
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.client.model_broker import error_frame
from tests.unit.client.scene import TOPIC, Scene, entry_of, staged, until


async def rest(reader: Reader[bytes]) -> list[bytes]:
    """Everything that the reader has still to read."""
    found = []
    async with asyncio.timeout(100):
        while await reader.has_message_available():
            found.append((await reader.read()).data)
    return found


@pytest.mark.parametrize(
    ("start", "inclusive", "expected"),
    [
        ("earliest", False, [b"a", b"b", b"c"]),
        ("latest", False, []),
        (0, False, [b"b", b"c"]),
        (0, True, [b"a", b"b", b"c"]),
        (2, False, []),
        (2, True, [b"c"]),
    ],
)
def test_a_reader_begins_after_its_start_or_with_it(
    start: str | int, inclusive: bool, expected: list[bytes]
) -> None:
    async def scenario(scene: Scene) -> None:
        ids = scene.store(b"a", b"b", b"c")
        named = {"earliest": MessageId.EARLIEST, "latest": MessageId.LATEST}
        at = named[start] if isinstance(start, str) else ids[start]
        reader = await scene.client.create_reader(TOPIC, at, start_inclusive=inclusive)
        assert await rest(reader) == expected
        scene.store(b"d")
        assert await reader.has_message_available()
        assert (await reader.read()).data == b"d"
        assert not await reader.has_message_available()
        with pytest.raises(OperationTimeout):
            await reader.read(1)

    staged(scenario)


@pytest.mark.parametrize(("inclusive", "expected"), [(False, [b"c", b"d"]), (True, [b"b", b"c", b"d"])])
def test_a_start_inside_a_batch_counts_its_messages(inclusive: bool, expected: list[bytes]) -> None:
    async def scenario(scene: Scene) -> None:
        ledger, entry = scene.store_batch(b"a", b"b", b"c")
        scene.store(b"d")
        at = MessageId(ledger, entry, -1, 1, 3)
        reader = await scene.client.create_reader(TOPIC, at, start_inclusive=inclusive)
        assert await rest(reader) == expected

    staged(scenario)


@pytest.mark.parametrize(("inclusive", "expected"), [(False, 0), (True, 1)])
def test_a_start_at_the_last_message_of_a_batch_at_the_end(inclusive: bool, expected: int) -> None:
    async def scenario(scene: Scene) -> None:
        ledger, entry = scene.store_batch(b"a", b"b")
        at = MessageId(ledger, entry, -1, 1, 2)
        reader = await scene.client.create_reader(TOPIC, at, start_inclusive=inclusive)
        assert len(await rest(reader)) == expected

    staged(scenario)


def test_a_reader_goes_on_where_it_was_after_a_new_connection() -> None:
    async def scenario(scene: Scene) -> None:
        scene.store(b"a")
        scene.store_batch(b"b", b"c", b"d")
        scene.store(b"e")
        reader = await scene.client.create_reader(TOPIC, MessageId.EARLIEST)
        assert [(await reader.read()).data for _ in range(2)] == [b"a", b"b"]
        scene.broker.kill()
        scene.broker.start()
        await until(lambda: len(scene.broker.of("subscribe")) == 2)
        assert await rest(reader) == [b"c", b"d", b"e"]

    staged(scenario)


def test_a_reader_of_an_empty_topic_and_of_partitions() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 2
        reader = await scene.client.create_reader(TOPIC, MessageId.EARLIEST)
        assert reader.topics == [f"{TOPIC}-partition-{number}" for number in range(2)]
        assert not await reader.has_message_available()
        for number in range(2):
            scene.cluster.topics[f"{TOPIC}-partition-{number}"].store(entry_of(b"%d" % number), 1)
        assert sorted(await rest(reader)) == [b"0", b"1"]
        await reader.seek(MessageId.EARLIEST)
        await until(lambda: reader.is_connected)
        assert sorted(await rest(reader)) == [b"0", b"1"]

    staged(scenario)


def test_iteration_ends_when_the_reader_is_closed() -> None:
    async def scenario(scene: Scene) -> None:
        scene.store(b"a", b"b")
        found = []
        async with await scene.client.create_reader(TOPIC, MessageId.EARLIEST) as reader:
            async for message in reader:
                found.append(message.data)
                if len(found) == 2:
                    await reader.close()
        assert found == [b"a", b"b"]
        with pytest.raises(Closed):
            await reader.read()

    staged(scenario)


# --- table views ---


def test_a_view_has_the_newest_value_of_each_key_and_follows() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC)
        for key, value in (("a", b"1"), ("b", b"1"), ("a", b"2"), (None, b"no key"), ("b", None)):
            await producer.send(value, key=key)
        view = await scene.client.create_table_view(TOPIC)
        assert dict(view.items()) == {"a": b"2"}
        seen: list[tuple[str, bytes | None]] = []
        view.for_each_and_listen(lambda key, value: seen.append((key, value)))
        await producer.send(b"1", key="c")
        await producer.send(b"", key="a")
        await view.refresh()
        assert seen == [("a", b"2"), ("c", b"1"), ("a", None)]
        assert (view.get("c"), view["c"], "a" in view, len(view), list(view)) == (b"1", b"1", False, 1, ["c"])
        assert (list(view.keys()), list(view.values())) == (["c"], [b"1"])
        await view.close()

    staged(scenario)


def test_a_listener_that_fails_does_not_end_the_view(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC)
        async with await scene.client.create_table_view(TOPIC) as view:
            view.listen(lambda key, value: 1 / 0)  # type: ignore[arg-type]
            await producer.send(b"1", key="a")
            await view.refresh()
            assert view["a"] == b"1"

    staged(scenario)
    assert "a listener of the table view" in caplog.text


def test_a_view_whose_topic_is_gone_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        view = await scene.client.create_table_view(TOPIC)
        scene.broker.answers["subscribe"] = lambda command, _: error_frame(
            command.request_id, ServerError.TopicNotFound
        )
        scene.broker.kill()
        scene.broker.start()
        await asyncio.sleep(10)
        with pytest.raises(Exception, match="TopicNotFound"):
            await view.refresh()
        await view.close()

    staged(scenario)
    assert "the table view of" in caplog.text

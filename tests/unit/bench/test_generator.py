"""A consuming side answers the messages it has, not the bytes it has seen of them."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from bench.frames import SendTemplate
from bench.generator import Acks, Consume
from tests.unit.bench.test_messages import messages

ENTRIES = 40


class Written(asyncio.Transport):
    """Keeps the entries that were acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: list[int] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        at = 0
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            command = pb.BaseCommand.FromString(bytes(data[at + 8 : end]))
            self.acknowledged += [one.entryId for one in command.ack.message_id]
            at = end


@pytest.mark.parametrize("step", [1, 7, 60, 90, 113, 127, 1_000, 1_000_000])
@pytest.mark.parametrize(("acks", "every"), [("individual", 1), ("alternate", 2)])
def test_each_message_is_answered_once_however_the_stream_is_cut(acks: Acks, every: int, step: int) -> None:
    stream = messages(0, ENTRIES)

    async def main() -> None:
        side = Consume(SendTemplate(100), acks, ENTRIES)
        written = Written()
        side.transport = written
        side.start()
        for at in range(0, len(stream), step):
            assert not side.done.done(), "done before the last message was whole"
            side.data_received(stream[at : at + step])
        assert side.done.done()
        assert written.acknowledged == list(range(0, ENTRIES, every))

    asyncio.run(main())

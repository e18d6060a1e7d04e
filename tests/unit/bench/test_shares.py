"""Consumers of one subscription are done when all of it has come, to whichever of them."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from bench.messages import message_id_of
from bench.shares import Shares, TakeShare
from tests.unit.bench.test_generator import Written
from tests.unit.bench.test_messages import messages


@pytest.mark.parametrize("step", [1, 60, 113, 1_000_000])
def test_a_share_is_acknowledged_whole_and_once_however_the_stream_is_cut(step: int) -> None:
    stream = messages(0, 40)

    async def main() -> None:
        seen: list[bytes] = []
        side = TakeShare(seen.extend)
        side.transport = written = Written()
        side.start()
        for at in range(0, len(stream), step):
            side.data_received(stream[at : at + step])
        assert written.acknowledged == [*range(40)]
        assert [pb.MessageIdData.FromString(message_id_of(one)).entryId for one in seen] == [*range(40)]

    asyncio.run(main())


def test_shares_are_done_together_at_the_last_message_of_any_of_them() -> None:
    async def main() -> None:
        shares = Shares(2)
        for side in shares.sides:
            side.transport = Written()
        shares.start()
        shares.sides[0].data_received(messages(0, 10))
        shares.expect(15)
        assert not any(side.done.done() for side in shares.sides)
        shares.sides[1].data_received(messages(10, 5))
        assert all(side.done.done() for side in shares.sides)

    asyncio.run(main())


def test_shares_that_have_everything_when_they_are_told_how_much_it_is_are_done() -> None:
    async def main() -> None:
        shares = Shares(1)
        shares.sides[0].transport = Written()
        shares.sides[0].data_received(messages(0, 10))
        shares.expect(10)
        assert shares.sides[0].done.done()

    asyncio.run(main())

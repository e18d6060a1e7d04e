"""Which ledgers may go: whole ones, closed ones, from the front, behind the slowest durable cursor, and
beyond what retention keeps."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import UnknownOutcome
from magnetar.common.metadata.store import Delete, Op
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import trimming
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.trimming import Retention, trimmable

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import ledger_ids, load, load_again, simulated, until

NOBODY = None
MINUTE_MS = 60_000
FOREVER = -1


def spans(*closed: bool) -> list[LedgerSpan]:
    return [
        LedgerSpan(LedgerRef(10 + number, 0), entries=5, closed=each) for number, each in enumerate(closed)
    ]


def closed_at(*minutes: int, size: int = 100) -> list[LedgerSpan]:
    """Closed ledgers of one size by the minute of their closing, and an open one of that size."""
    ledgers = spans(*[True] * len(minutes), False)
    for span, minute in zip(ledgers, minutes, strict=False):
        span.closed_ms = minute * MINUTE_MS
    for span in ledgers:
        span.byte_length = size
    return ledgers


def test_a_ledger_goes_when_the_slowest_cursor_is_at_its_end() -> None:
    ledgers = spans(True, True, True, False)
    assert trimmable(ledgers, Position(-1, -1)) == 0
    assert trimmable(ledgers, Position(10, 3)) == 0
    assert trimmable(ledgers, Position(10, 4)) == 1
    assert trimmable(ledgers, Position(11, -1)) == 1
    assert trimmable(ledgers, Position(12, 3)) == 2
    assert trimmable(ledgers, Position(13, 4)) == 3


def test_without_durable_cursors_every_closed_ledger_at_the_front_goes() -> None:
    assert trimmable(spans(True, True, False), None) == 2
    assert trimmable(spans(True, False, True), None) == 1
    assert trimmable(spans(False), None) == 0
    assert trimmable([], None) == 0


@pytest.mark.parametrize(
    ("time_ms", "size_bytes", "gone"),
    [
        pytest.param(0, 0, 4, id="no retention"),
        pytest.param(FOREVER, FOREVER, 0, id="everything for ever"),
        pytest.param(10 * MINUTE_MS, FOREVER, 2, id="closed 30 and 20 minutes ago; 10 is not older than 10"),
        pytest.param(FOREVER, 300, 2, id="without two ledgers 300 bytes are left"),
        pytest.param(FOREVER, 301, 1, id="a byte more, and one of them is kept"),
        pytest.param(FOREVER, 10_000, 0, id="not so much stored yet"),
        pytest.param(25 * MINUTE_MS, 200, 3, id="young enough and still beyond the size"),
        pytest.param(5 * MINUTE_MS, 10_000, 3, id="within the size and still too old"),
        pytest.param(0, FOREVER, 4, id="size without bound, kept for no time"),
        pytest.param(FOREVER, 0, 4, id="kept for ever, of no size"),
    ],
)
def test_a_ledger_is_kept_only_while_both_limits_hold(time_ms: int, size_bytes: int, gone: int) -> None:
    ledgers = closed_at(0, 10, 20, 29)
    assert trimmable(ledgers, NOBODY, Retention(time_ms, size_bytes), 30 * MINUTE_MS) == gone


def test_the_front_goes_first_and_what_is_behind_a_kept_ledger_stays() -> None:
    ledgers = closed_at(29, 0, 0)
    assert trimmable(ledgers, NOBODY, Retention(MINUTE_MS * 10, FOREVER), 30 * MINUTE_MS) == 0


def test_retention_never_takes_what_a_durable_cursor_needs() -> None:
    ledgers = closed_at(0, 0, 0)
    assert trimmable(ledgers, Position(10, 4), Retention(1, 1), 30 * MINUTE_MS) == 1


def test_bytes_after_a_position_are_exact_by_ledgers_and_averaged_within() -> None:
    ledgers = LedgerSpans()
    for number, size in enumerate((100, 50, 10)):
        ledgers.add(LedgerSpan(LedgerRef(10 + number, 0), entries=5, byte_length=size, closed=True))
    assert (
        ledgers.byte_length == ledgers.bytes_after(EARLIEST) == ledgers.bytes_after(Position(10, -1)) == 160
    )
    assert ledgers.bytes_after(Position(10, 1)) == 60 + 60
    assert ledgers.bytes_after(Position(10, 4)) == ledgers.bytes_after(Position(11, -1)) == 60
    assert ledgers.bytes_after(Position(12, 3)) == 2
    assert ledgers.bytes_after(Position(12, 4)) == ledgers.bytes_after(Position(13, 7)) == 0
    assert LedgerSpans().bytes_after(EARLIEST) == 0


def test_the_position_before_the_last_bytes_is_the_first_with_no_more_behind_it() -> None:
    ledgers = LedgerSpans()
    for number, size in enumerate((100, 50, 10)):
        ledgers.add(LedgerSpan(LedgerRef(10 + number, 0), entries=5, byte_length=size, closed=True))
    positions = [Position(10 + number, entry) for number in range(3) for entry in range(-1, 5)]
    for byte_count in range(0, 170, 3):
        found = ledgers.position_before_last(byte_count)
        assert ledgers.bytes_after(found) <= byte_count
        assert all(ledgers.bytes_after(each) > byte_count for each in positions if each < found)
    assert LedgerSpans().position_before_last(10) == EARLIEST


def test_acknowledged_entries_follow_retention_and_its_changes() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        topic.ledger.retain(Retention(10 * MINUTE_MS, FOREVER))
        for _ in range(3):
            await topic.publish_confirmed(11)
            await asyncio.sleep(60)
        ids = ledger_ids(topic)
        assert len(ids) == 3, "nobody has a subscription, and yet it is kept"
        await asyncio.sleep(7 * 60 + 30)
        topic.ledger.trim()
        assert ledger_ids(topic) == ids[1:], "the first one is older than ten minutes"
        topic.ledger.retain(Retention(FOREVER, 1))
        assert ledger_ids(topic) == ids[2:], "without the second one there is still more than a byte"
        topic.ledger.retain(Retention(0, 0))
        await until(lambda: ledger_ids(topic) == [])

    simulated(scenario)


def test_a_trim_whose_commit_was_lost_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of one trim leave the head's value as it is: its value does not tell which of them were
    made."""
    monkeypatch.setattr(trimming, "LEDGERS_PER_TRANSACTION_MAX", 2)

    async def scenario(process: Process) -> None:
        topic = await load(process, ledger_entries_max=1)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        for _ in range(8):
            await topic.publish_confirmed()
        await asyncio.sleep(1)
        trims = 0
        commit = process.metadata._commit

        async def lossy(ops: list[Op], lease: int | None) -> int:
            nonlocal trims
            trims += any(isinstance(op, Delete) and op.key.startswith(KEYS.topics_prefix) for op in ops)
            if trims == 2:
                trims += 1
                raise UnknownOutcome("the connection broke before anything was written")
            return await commit(ops, lease)

        monkeypatch.setattr(process.metadata, "_commit", lossy)
        cursor.ack_cumulative(LATEST)
        await topic.flushed()
        topic.ledger.trim()
        topic.ledger.trim()
        await asyncio.sleep(30)
        assert trims >= 3, "one of them was lost"
        listed = [item.key for item in (await process.metadata.children(KEYS.topics_prefix)).items]
        assert len(listed) == len(ledger_ids(topic)), "metadata has what the topic has"

    simulated(scenario)


def test_over_restored_metadata_nothing_goes_until_it_is_released() -> None:
    """A subscription may have been made after the copy, and come back at the end with its consumer."""

    async def scenario(process: Process) -> None:
        topic = await load(process)
        topic.ctx.restored.holds = True
        for _ in range(3):
            await topic.publish_confirmed(10)
            await asyncio.sleep(1)
        topic.ledger.trim()
        await asyncio.sleep(1)
        all_of_them = ledger_ids(topic)
        cursor = await topic.ledger.create_cursor("sub", LATEST, {})
        cursor.ack_cumulative(topic.ledger.last_confirmed)
        await topic.flushed()
        await asyncio.sleep(1)
        assert ledger_ids(topic) == all_of_them
        topic.ctx.restored.holds = False
        topic.ledger.trim()
        await until(lambda: not set(all_of_them[:2]) & set(ledger_ids(topic)))

    simulated(scenario)


def test_the_age_of_a_ledger_outlives_a_restart() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", LATEST, {})
        topic.ledger.retain(Retention(FOREVER, FOREVER))
        await topic.publish_confirmed(11)
        await topic.ledger.close()
        await asyncio.sleep(5 * 60)
        again = await load_again(topic.ctx)
        (span,) = again.ledger.spans.spans
        assert again.ctx.clock.wall_ms() - span.closed_ms >= 5 * MINUTE_MS
        await again.ledger.delete_cursor("sub")
        assert not ledger_ids(again)

    simulated(scenario)


def test_a_quiet_topic_rolls_at_its_maximum_age_so_that_its_last_ledger_can_grow_old() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, ledger_age_max_minutes=1)
        topic.ledger.retain(Retention(MINUTE_MS, FOREVER))
        await topic.publish_confirmed(3)
        await asyncio.sleep(62)
        (span,) = topic.ledger.spans.spans
        assert span.closed, "three entries, and nobody publishes: closed for its age alone"
        await asyncio.sleep(60)
        topic.ledger.trim()
        assert not ledger_ids(topic)

    simulated(scenario)


def test_truncation_overrides_retention() -> None:
    ledgers = closed_at(0, 0, 0)
    forever = Retention(FOREVER, FOREVER, truncated=Position(11, 4))
    assert trimmable(ledgers, NOBODY, forever) == 2
    assert trimmable(ledgers, Position(10, 4), forever) == 1, "a durable cursor needs the rest"
    assert trimmable(ledgers, NOBODY, Retention(FOREVER, FOREVER, truncated=Position(11, 3))) == 1
    assert Retention(1, 2).after(forever) == Retention(1, 2, truncated=Position(11, 4))


def test_truncated_and_rolled_a_topic_is_empty_and_goes_on() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        ledger = topic.ledger
        cursor = await ledger.create_cursor("sub", EARLIEST, {})
        ledger.retain(Retention(FOREVER, FOREVER))
        await topic.publish_confirmed(3)
        end = ledger.last_confirmed
        ledger.retain(Retention(FOREVER, FOREVER, truncated=end))
        ledger.roll()
        await asyncio.sleep(1)
        assert ledger.entries == 3, "the cursor has not passed it"
        cursor.ack_cumulative(end)
        await topic.flushed()
        await until(lambda: not ledger_ids(topic))
        ledger.retain(Retention(FOREVER, 10_000))
        (position, *_) = await topic.publish_confirmed(2)
        assert position > end
        ledger.roll()
        await asyncio.sleep(1)
        assert ledger.entries == 2, "what came afterwards is kept"
        await ledger.close()
        again = await load_again(topic.ctx)
        assert again.ledger.entries == cursor.backlog() == 2

    simulated(scenario)


def test_roll_of_an_idle_ledger_is_harmless() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        for _ in range(2):
            topic.ledger.roll()
            await asyncio.sleep(1)
        await topic.publish_confirmed(1)
        topic.publish(2)
        topic.ledger.roll()
        topic.publish(3)
        await topic.published_all()
        assert topic.ledger.last_confirmed.entry_id == 2

    simulated(scenario)

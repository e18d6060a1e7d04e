"""Delayed delivery on Shared and Key_Shared: entries wait in the topic's index until they are due.

At dispatch, an entry with a deliver_at_time in the future is added to the topic's index (managed ledger,
`delayed_index`) instead of being sent. An entry in the index is delivered only from there: it is not read
before, and not delivered when a read returns it again. So each is delivered once, whichever subscription of
the topic has added it. No entry is early, and none waits for a tick (messaging contract, section 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.reason import Reason, iso_time
from magnetar.common.naming.position import Position
from magnetar.common.wire.delivery_time import delivered_later
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from magnetar.ledger.managed_ledger.ack_state import ENTRY_IDS_MAX
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.topic_delays import TopicDelays
from pyroaring import BitMap


class DelayGate:
    """Holds back the delayed entries of one subscription.

    Implements entry_gate.EntryGate and topic_delays.DelayListener.
    """

    __slots__ = (
        "_cursor",
        "_delays",
        "_deliver_due",
        "_held",
        "_is_held",
        "_late",
        "_ledger",
        "_read_again",
        "_read_position",
        "_tick_s",
    )

    def __init__(
        self,
        ledger: ManagedLedger,
        cursor: Cursor,
        *,
        tick_ms: int,
        read_position: Callable[[], Position],
        deliver_due: Callable[[Iterable[tuple[int, int]]], None],
        read_again: Callable[[int, BitMap], None],
        is_held: Callable[[int, int], bool],
        held: Callable[[], Iterable[Position]],
        late: bool,
    ) -> None:
        """Connects the gate to its subscription.

        `deliver_due` takes entries to deliver now, by time; `read_again` takes entries of a ledger to pass
        through the gates again. `is_held` tells whether a consumer holds an entry, `held` lists all that
        consumers hold. `late`: entries may have been delivered before this gate existed.
        """
        self._ledger = ledger
        self._cursor = cursor
        self._tick_s = tick_ms / 1000
        self._read_position = read_position
        self._deliver_due = deliver_due
        self._read_again = read_again
        self._is_held = is_held
        self._held = held
        self._late = late
        self._delays: TopicDelays | None = None

    # -- gate interface

    def hold(self, run: Run) -> Sequence[Run]:
        if run.flags & RUN_MARKER:
            return (run,)
        times = delivered_later(run.entries, run.byte_length)
        if not times:
            return (run,)
        delays = self._listen(self._ledger.delayed_entries())
        now_ms = delays.now_ms()
        indexed = delays.index.entries_of(run.ledger_id)
        first = run.first_entry_id
        parts: list[Run] = []
        passing = first
        for index, time_ms in times.items():
            entry_id = first + index
            if time_ms > now_ms:
                delays.hold(time_ms, run.ledger_id, entry_id)
            elif indexed is None or entry_id not in indexed:
                continue
            if passing < entry_id:
                parts.append(run.slice(passing, entry_id - 1))
            passing = entry_id + 1
        delays.settle()
        if passing <= run.last_entry_id:
            parts.append(run.slice(passing, run.last_entry_id))
        return parts

    def kept(self, ledger_id: int) -> BitMap | None:
        delays = self._delays
        if delays is None:
            if self._ledger.delays is None:
                return None
            delays = self._listen(self._ledger.delays)
        return delays.index.entries_of(ledger_id)

    def clear(self) -> None:
        if self._delays is not None:
            self._delays.unlisten(self)
            self._delays = None

    def open(self) -> None:
        """Releases all entries because delayed delivery was disabled."""
        if self._delays is not None:
            index = self._delays.index
            self.on_forgotten({each: index.entries_of(each) or BitMap() for each in index.ledger_ids})
        self.clear()

    def _listen(self, delays: TopicDelays) -> TopicDelays:
        if self._delays is None:
            self._delays = delays
            delays.tick_s = self._tick_s
            delays.listen(self)
        return delays

    # -- events of the topic's index

    def on_due(self, entries: Sequence[tuple[int, int]]) -> None:
        # Entries beyond the read position will be read later, and are due by then.
        read, is_acked = self._read_position(), self._cursor.is_acked
        ours = [entry for entry in entries if entry <= read and not is_acked(*entry)]
        if self._went_out_early():
            ours = [entry for entry in ours if not self._is_held(*entry)]
        if ours:
            self._deliver_due(ours)

    def on_forgotten(self, entries: Mapping[int, BitMap]) -> None:
        read = self._read_position()
        for ledger_id, entry_ids in entries.items():
            if ledger_id > read.ledger_id:
                continue
            ours = entry_ids.copy()
            if ledger_id == read.ledger_id:
                ours.remove_range(read.entry_id + 1, ENTRY_IDS_MAX)
            if self._went_out_early():
                # Consumers hold far fewer entries than an index may have.
                ours -= BitMap([held.entry_id for held in self._held() if held.ledger_id == ledger_id])
            self._read_again(ledger_id, ours)

    def _went_out_early(self) -> bool:
        """True when consumers may hold entries of the index, because this gate did not hold back every
        one.
        """
        return self._late or (self._delays is not None and self._delays.clock_set_back)


def count_delayed(delays: TopicDelays, cursor: Cursor) -> int:
    """Counts the entries of the topic's index that this cursor has not acknowledged."""
    index = delays.index
    return sum(
        cursor.count_unacked(ledger_id, entry_ids)
        for ledger_id in index.ledger_ids
        if (entry_ids := index.entries_of(ledger_id)) is not None
    )


def delayed_reason(delays: TopicDelays, delayed: int) -> Reason | None:
    """Returns how many entries wait for their time, and until when; None without any."""
    due_in_ms = delays.due_in_ms
    if not delayed or due_in_ms is None:
        return None
    return reason(
        Code.DELAYED_UNTIL,
        f"{delayed} entries wait for their time, the next one for {due_in_ms / 1000:.3f} s",
        entries=delayed,
        until=iso_time(delays.now_ms() + due_in_ms),
    )


def delay_tick_ms(policies: EffectivePolicies) -> int:
    """Returns the tick for `Subscription.delay_delivery`: 0 where delayed delivery is disabled."""
    return policies.delayed_delivery_tick_ms if policies.delayed_delivery_active else 0

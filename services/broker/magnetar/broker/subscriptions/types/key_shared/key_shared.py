"""Key_Shared: every entry goes to the consumer that owns its slot, in order within a slot.

Delivery has three steps, each only when the one before has nothing to do, so that no entry overtakes an older
one:

1. Entries to redeliver (requested, left by a disconnected consumer, or delayed until now) go to the owner of
their slot, or wait for it.

2. Waiting entries go to their consumers that have permits.

3. New entries are divided among the owners of their slots. An entry waits if its owner has no permits,
together with all newer entries for that owner; entries of a draining or unowned slot wait, too. The number of
waiting entries is bounded (keySharedLookAheadMsgInReplayThreshold...); at the bound only the first two steps
run.

The draining slots follow from the unacknowledged entries and the slot owners; they are computed again when
consumers connect or disconnect, and when a holder acknowledges. Nothing polls, so
keySharedUnblockingIntervalMs is not used.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import ClassVar

from magnetar.broker.dispatch.eligibility import IDLE_SHOWN_MAX, Code, reason
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.key_shared.draining import DrainingSlots
from magnetar.broker.dispatch.key_shared.sticky_key import slots_of
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer, fitting
from magnetar.broker.subscriptions.types.individual_delivery import IndividualDelivery
from magnetar.broker.subscriptions.types.key_shared.kept_reasons import (
    by_holder,
    unowned_slots,
    waits_for_acks,
    waits_for_owner,
)
from magnetar.broker.subscriptions.types.key_shared.slot_pending_acks import SlotPendingAcks, slot_pending
from magnetar.broker.subscriptions.types.key_shared.waiting_entries import (
    Share,
    WaitingEntries,
    pack,
    share_of,
    unpack,
)
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts, SubscriptionType, SubType
from magnetar.common.errors import ConsumerBusy
from magnetar.common.wire.messages import run_entry_metadata
from magnetar.ledger.ledger_store import Run


class KeySharedType(SubscriptionType[KeySharedDispatcher[Consumer]]):
    """Key_Shared subscriptions."""

    __slots__ = ()

    sub_type: ClassVar[SubType.ValueType] = SubType.Key_Shared
    individual: ClassVar[bool] = True
    turn_entries_max: ClassVar[int] = 300
    """Fewer than on other types: each entry's key is hashed, and entries are divided among consumers."""

    def dispatcher(
        self, first: Consumer, topic: str, config: DispatchConfig
    ) -> KeySharedDispatcher[Consumer]:
        return KeySharedDispatcher(
            first,
            consistent_hashing=config.key_shared_consistent_hashing,
            points=config.key_shared_points,
        )

    def delivery(self, dispatcher: KeySharedDispatcher[Consumer], parts: DeliveryParts) -> KeySharedDelivery:
        return KeySharedDelivery(dispatcher, parts)

    def choose(self, dispatcher: KeySharedDispatcher[Consumer], entry: bytes) -> tuple[Consumer, int] | None:
        return dispatcher.next_for(entry)

    def admit(self, subscription: str, consumer: Consumer, connected: Sequence[Consumer]) -> None:
        if not connected:
            return
        other = connected[0]
        if consumer.sticky != other.sticky or consumer.allow_out_of_order != other.allow_out_of_order:
            raise ConsumerBusy(
                f"subscription {subscription} is of different type: its consumers share keys "
                f"{_sharing(other)}, not {_sharing(consumer)}"
            )

    def key_shared(self, dispatcher: KeySharedDispatcher[Consumer]) -> KeySharedDispatcher[Consumer]:
        return dispatcher


def _sharing(consumer: Consumer) -> str:
    mode = "STICKY" if consumer.sticky else "AUTO_SPLIT"
    return f"{mode} {'out of' if consumer.allow_out_of_order else 'in'} order"


class KeySharedDelivery(IndividualDelivery):
    """Delivery to the consumers of a Key_Shared subscription. Implements delivery.Delivery and ReadHolder."""

    __slots__ = (
        "_budget",
        "_config",
        "_dispatcher",
        "_held",
        "_held_bytes",
        "_held_count",
        "_left",
        "_now_ms",
        "_owners_moved",
        "_waiting",
        "_wake",
    )

    def __init__(self, dispatcher: KeySharedDispatcher[Consumer], parts: DeliveryParts) -> None:
        super().__init__(dispatcher.consumers, parts)
        parts.source.in_order = True
        self._dispatcher = dispatcher
        self._config = parts.config
        self._budget = parts.budget
        self._now_ms = parts.now_ms
        self._wake = parts.wake
        self._waiting: dict[Consumer, WaitingEntries] = {}
        self._held_bytes = 0
        self._held: dict[int, list[int]] = {}
        """Packed entries of draining or unowned slots, by slot."""
        self._held_count = 0
        self._left: list[int] = []
        """Packed entries that waited for disconnected consumers, until their new owners are computed."""
        self._owners_moved = False
        """True when consumers connected or disconnected and the slot owners must be computed again before the
        next delivery.
        """

    # -- for statistics

    @property
    def draining(self) -> DrainingSlots[Consumer]:
        return self._dispatcher.draining

    @property
    def waiting(self) -> int:
        """Number of examined entries that wait."""
        return sum(map(len, self._waiting.values())) + self._held_count + len(self._left)

    @property
    def paused_by(self) -> Reason | None:
        if self.waiting < self._look_ahead_max or self._source.replaying or self.keeps_ready:
            return None
        return reason(
            Code.LOOK_AHEAD_FULL,
            f"{self.waiting} entries wait for consumers without permits, {self._held_count} of them in "
            f"{len(self._held)} draining or unowned slots: reading is paused",
            entries=self.waiting,
            limit=self._look_ahead_max,
        )

    @property
    def keeps_ready(self) -> bool:
        return self._owners_moved or bool(self._left) or any(each.capacity > 0 for each in self._waiting)

    def kept_back(self) -> list[Reason]:
        found = []
        for consumer, waiting in islice(self._waiting.items(), IDLE_SHOWN_MAX):
            held = consumer.held_back_by
            if held is not None and waiting:
                found.append(waits_for_owner(consumer, waiting, held))
        draining = {slot: self.draining.slots[slot] for slot in self._held if slot in self.draining.slots}
        for holder, slots in by_holder(draining):
            firsts = slot_pending(holder).first_in_slots(slots)
            found += [
                waits_for_acks(slot, draining[slot], len(self._held[slot]), firsts.get(slot))
                for slot in slots
            ]
        unowned = [slot for slot in self._held if slot not in draining]
        if unowned:
            found.append(unowned_slots(unowned, sum(len(self._held[slot]) for slot in unowned)))
        return found

    @property
    def _look_ahead_max(self) -> int:
        """Computes the bound as Apache Pulsar 4.0 does from its two settings; 0 means no bound."""
        per_consumer = self._config.look_ahead_per_consumer * len(self._consumers)
        bounds = [each for each in (per_consumer, self._config.look_ahead_per_subscription) if each]
        return min(bounds, default=self._config.subscription_unacked_max or 200_000)

    # -- connecting and removing consumers

    def consumer_added(self, consumer: Consumer) -> None:
        consumer.pending = SlotPendingAcks()
        self._move_owners()

    def consumer_removed(self, consumer: Consumer) -> None:
        self._source.replay_all(consumer.pending.positions())
        consumer.pending.clear()
        left = self._waiting.pop(consumer, None)
        if left is not None:
            self._let_go(left.drop_bytes())
            self._left += left.take_all()
        self._move_owners()

    def _move_owners(self) -> None:
        """Schedules one recomputation for all consumers that connect or disconnect together: it visits every
        held and waiting entry.
        """
        if not self._owners_moved:
            self._owners_moved = True
            asyncio.get_running_loop().call_soon(self._owners_changed)

    def _owners_changed(self) -> None:
        """Computes the draining slots and the consumer of each waiting entry after slots have moved."""
        if not self._owners_moved:
            return
        self._owners_moved = False
        draining = self.draining
        if self._dispatcher.drains:
            held = [(each, slot_pending(each).in_slots()) for each in self._consumers]
            draining.owners_changed(held, self._dispatcher.selector.owner, self._now_ms())
            holders = {each.holder for each in draining.slots.values()}
            for consumer in self._consumers:
                slot_pending(consumer).on_settled = self._settler(consumer) if consumer in holders else None
        everything, self._left = self._left, []
        for waiting in self._waiting.values():
            everything += waiting.take_all()
        for packed in self._held.values():
            everything += packed
        self._waiting.clear()
        self._held.clear()
        self._held_count = 0
        self._let_go()
        for packed_entry in everything:
            self._wait_again(packed_entry)

    def _settler(self, consumer: Consumer) -> Callable[[list[int]], None]:
        def settled(slots: list[int]) -> None:
            self._release(self.draining.settled(consumer, slots))

        return settled

    def _release(self, slots: Iterable[int]) -> None:
        """Ends the draining of slots: their held entries wait for their owners."""
        for slot in slots:
            held = self._held.pop(slot, ())
            self._held_count -= len(held)
            for packed in held:
                self._wait_again(packed)
            self._wake()

    def rewind(self) -> None:
        self._waiting.clear()
        self._left.clear()
        self._held.clear()
        self._held_count = 0
        self._let_go()
        super().rewind()

    def close(self) -> None:
        self._owners_moved = False
        self._waiting.clear()
        self._let_go()

    # -- memory of waiting entries

    def give_back(self) -> None:
        """Releases memory of waiting entries; they are read again when they can be sent."""
        for waiting in self._waiting.values():
            waiting.drop_bytes()
        self._let_go()

    def _keep(self, byte_count: int) -> bool:
        """Reserves memory for the bytes of entries that begin to wait; returns False without room."""
        if self._held_bytes + byte_count > self._config.read_bytes_max or not self._budget.has_room(
            byte_count
        ):
            return False
        self._budget.reserve_read(self, byte_count)
        self._held_bytes += byte_count
        return True

    def _let_go(self, byte_count: int | None = None) -> None:
        """Releases memory of entries that no longer wait; None: all of it."""
        released = self._held_bytes if byte_count is None else byte_count
        if released:
            self._held_bytes -= released
            self._budget.release_read(self, released, all_of_it=not self._held_bytes)

    # -- dispatch

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        self._owners_changed()
        if self._source.replaying:
            return self._deliver_again(entries_max, bytes_max)
        if self._waiting:
            done = self._deliver_waiting(entries_max, bytes_max)
            if done is not None:
                return done
        return self._deliver_new(entries_max, bytes_max)

    def _deliver_again(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        peeked = self._source.peek(entries_max)
        if not self._source.replaying:
            # All of these entries were acknowledged meanwhile: continue with waiting or new ones.
            return 1, 0
        if peeked is None:
            return None
        run, _ = peeked
        if self._outlet.skips(run):
            self._source.advance(len(run.entries))
            return len(run.entries), 0
        return self._one_by_one(self._outlet.within(run, entries_max, bytes_max))

    def _one_by_one(self, run: Run) -> tuple[int, int]:
        """Sends entries that may have been delivered before, each with its state from the cursor."""
        self._source.advance(len(run.entries))
        ledger_id = run.ledger_id
        size = 0
        counts = run.message_counts
        for index, slot in enumerate(slots_of(run.entries)):
            entry_id = run.first_entry_id + index
            if self._outlet.is_settled(ledger_id, entry_id, 1 if counts is None else counts[index]):
                continue
            packed = pack(ledger_id, entry_id, slot)
            owner = None if slot in self.draining.slots else self._dispatcher.selector.owner(slot)
            if owner is None or owner.capacity <= 0 or not self._is_next(owner, packed):
                self._wait_again(packed)
                continue
            if owner.pending.holds(ledger_id, entry_id):
                continue
            one = run.slice(entry_id, entry_id)
            self._send_in_slot(owner, one, slot)
            size += one.byte_length
        return len(run.entries), size

    def _is_next(self, consumer: Consumer, packed: int) -> bool:
        """Whether no older entry waits for the consumer; the entry itself may wait, if it became due as
        well.
        """
        waiting = self._waiting.get(consumer)
        if waiting is None:
            return True
        oldest = waiting.oldest
        return oldest is None or packed <= oldest

    def _wait_again(self, packed: int) -> None:
        """Makes an entry, given by its position, wait for its slot or for the slot's owner."""
        slot = unpack(packed)[2]
        draining = self.draining.slots.get(slot)
        if draining is not None:
            draining.blocked_attempts += 1
        owner = None if draining is not None else self._dispatcher.selector.owner(slot)
        if owner is None:
            self._held.setdefault(slot, []).append(packed)
            self._held_count += 1
        else:
            dropped = self._waiting_for(owner).add_again(packed)
            if dropped:
                self._let_go(dropped)

    def _waiting_for(self, consumer: Consumer) -> WaitingEntries:
        waiting = self._waiting.get(consumer)
        if waiting is None:
            waiting = self._waiting[consumer] = WaitingEntries()
        return waiting

    def _deliver_waiting(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        """Sends waiting entries to consumers with permits, in turns; None without one."""
        entries = size = 0
        again: list[tuple[int, int]] = []
        for consumer, waiting in list(self._waiting.items()):
            if entries >= entries_max or size >= bytes_max:
                break
            capacity = min(consumer.capacity, entries_max - entries)
            before = entries
            while capacity > 0 and size < bytes_max:
                if waiting.reads_again:
                    # The first step delivers them again; the consumer's shares continue after that.
                    taken = waiting.take_again(capacity)
                    again += taken
                    entries += len(taken)
                    break
                share = waiting.take_share(capacity)
                if share is None:
                    break
                byte_count = share.byte_length
                self._let_go(byte_count)
                entries += len(share.entry_ids)
                size += byte_count
                self._send_unacked(consumer, share)
                capacity = min(consumer.capacity, entries_max - entries)
            if not waiting:
                del self._waiting[consumer]
            elif entries > before:
                # It had its turn: move it behind the others, which this step may not reach.
                self._waiting[consumer] = self._waiting.pop(consumer)
        self._source.replay_all(again)
        return (entries, size) if entries else None

    def _send_unacked(self, consumer: Consumer, share: Share) -> None:
        """Sends waiting entries, without those acknowledged meanwhile (expired, skipped or withheld)."""
        is_settled, ledger_id, counts = self._outlet.is_settled, share.ledger_id, share.message_counts
        acked = [
            is_settled(ledger_id, entry_id, 1 if counts is None else counts[index])
            for index, entry_id in enumerate(share.entry_ids)
        ]
        if not any(acked):
            self._send_share(consumer, share)
            return
        for index, gone in enumerate(acked):
            if not gone:
                self._send_share(consumer, share.part(index, index + 1))

    def _deliver_new(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        capacity = 0
        for consumer in self._consumers:
            capacity += consumer.capacity
            if capacity >= entries_max:
                break
        if capacity <= 0 or self.waiting >= self._look_ahead_max:
            return None
        source, outlet = self._source, self._outlet
        messages_max = min(entries_max, capacity)
        peeked = source.peek(messages_max)
        if peeked is None:
            return None
        run, _ = peeked
        if outlet.skips(run):
            source.advance(len(run.entries))
            return len(run.entries), 0
        run = outlet.within(run, messages_max, bytes_max)
        if outlet.may_have_entry_state(run):
            return self._one_by_one(run)
        source.advance(len(run.entries))
        if run.message_counts is None and len(run.entries) < messages_max and not self._wants_metadata:
            run = self._with_following(run, messages_max, bytes_max)
        self._divide(run)
        return len(run.entries), run.byte_length

    @property
    def _wants_metadata(self) -> bool:
        return any(consumer.sends_entry_metadata for consumer in self._consumers)

    def _with_following(self, run: Run, entries_max: int, bytes_max: int) -> Run:
        """Joins the run with the runs directly after it: the cost of dividing is per run and consumer.

        Joins only runs of single messages; attributes of a run (its time, the index of its first entry) are
        not needed any more.
        """
        source = self._source
        entries, size = list(run.entries), run.byte_length
        while len(entries) < entries_max and size < bytes_max:
            peeked = source.peek(entries_max - len(entries))
            if peeked is None or peeked[1]:
                break
            following = peeked[0]
            if (
                following.message_counts is not None
                or following.flags != run.flags
                or following.ledger_id != run.ledger_id
                or following.first_entry_id != run.first_entry_id + len(entries)
                or self._outlet.may_have_entry_state(following)
            ):
                break
            following = self._outlet.within(following, entries_max - len(entries), bytes_max - size)
            source.advance(len(following.entries))
            entries += following.entries
            size += following.byte_length
        return Run(entries, ledger_id=run.ledger_id, first_entry_id=run.first_entry_id, byte_length=size)

    def _divide(self, run: Run) -> None:
        """Sends new entries to the owners of their slots."""
        selector, draining = self._dispatcher.selector, self.draining.slots
        bounds, owners = selector.bounds, selector.owners
        slots = slots_of(run.entries)
        indexes: defaultdict[Consumer | None, list[int]] = defaultdict(list)
        # None: in a draining or unowned slot.
        if draining:
            for index, slot in enumerate(slots):
                indexes[None if slot in draining else owners[bisect_left(bounds, slot)]].append(index)
        else:
            for index, slot in enumerate(slots):
                indexes[owners[bisect_left(bounds, slot)]].append(index)
        for index in indexes.pop(None, ()):
            self._wait_again(pack(run.ledger_id, run.first_entry_id + index, slots[index]))
        metadata: Sequence[bytes] | None = None
        for consumer, of_consumer in indexes.items():
            assert consumer is not None, "removed before"
            if consumer.sends_entry_metadata and metadata is None:
                metadata = run_entry_metadata(
                    run.publish_time_ms, run.first_index, len(run.entries), run.message_counts
                )
            self._give(
                consumer,
                share_of(run, slots, of_consumer, metadata if consumer.sends_entry_metadata else None),
            )

    def _give(self, consumer: Consumer, share: Share) -> None:
        """Sends as many entries as the consumer has permits for; the others wait."""
        waiting = self._waiting.get(consumer)
        if waiting is None:
            capacity = consumer.capacity
            count = fitting(len(share.entries), share.message_counts, capacity) if capacity > 0 else 0
            if count == len(share.entry_ids):
                self._send_share(consumer, share)
                return
            if count:
                self._send_share(consumer, share.part(0, count))
                share = share.part(count, len(share.entry_ids))
            waiting = self._waiting_for(consumer)
        if waiting.keeps_bytes and self._keep(share.byte_length):
            waiting.add_share(share)
        else:
            waiting.add_beyond(share.packed())

    # -- sending

    def _send_in_slot(self, consumer: Consumer, run: Run, slot: int) -> None:
        """Sends one entry with its state from the cursor."""
        pending = slot_pending(consumer)
        messages = self._outlet.send_one(consumer, run, individual=True)
        pending.add_in_slot(run.ledger_id, run.first_entry_id, messages, slot)
        consumer.note_unacked()
        self._outlet.count(run.ledger_id, run.first_entry_id, messages, run.byte_length)

    def _send_share(self, consumer: Consumer, share: Share) -> None:
        """Sends complete new entries."""
        messages, byte_count = share.messages, share.byte_length
        ledger_id, entry_ids = share.ledger_id, share.entry_ids
        consumer.deliver_entries(ledger_id, entry_ids, share.entries, messages, byte_count, share.metadata)
        slot_pending(consumer).add_entries(ledger_id, entry_ids, share.slots, share.message_counts)
        consumer.note_unacked()
        self._outlet.count(ledger_id, entry_ids[-1], messages, byte_count)

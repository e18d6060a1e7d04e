"""Key_Shared: every entry to the consumer that owns its slot, in order within a slot.

Three steps, each only when the one before has nothing to do, so that nothing overtakes what is older:
1. what the source has to deliver again (asked for, left by a consumer that went, delayed until now) goes to
   the owner of its slot, or waits for it;
2. what waits for a consumer that can take something goes to it;
3. new entries are divided among their owners. One whose owner cannot take it waits, with everything newer for
   the same consumer, and so does what belongs to a slot that drains or that nobody owns. How many may wait is
   bounded (keySharedLookAheadMsgInReplayThreshold...); at the bound only the first two steps go on.

Which slots drain is a function of who holds and who owns what; it is looked at again when consumers come and
go, and when a holder acknowledges. Nothing polls, so keySharedUnblockingIntervalMs has no use here.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.key_shared.draining import DrainingSlots
from magnetar.broker.dispatch.key_shared.sticky_key import slots_of
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer, fitting
from magnetar.broker.subscriptions.types.individual_delivery import IndividualDelivery
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
    """Fewer than on other types: each entry's key is looked at, and entries are divided among consumers."""

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
        self._wake = parts.wake
        self._waiting: dict[Consumer, WaitingEntries] = {}
        self._held_bytes = 0
        self._held: dict[int, list[int]] = {}
        """By slot, packed: entries of slots that drain or have no owner."""
        self._held_count = 0
        self._left: list[int] = []
        """Packed: entries that waited for consumers that are gone, until it is known for whom they do now."""
        self._owners_moved = False
        """Consumers came or went, and what follows from it is to be found before anything is delivered."""

    # -- what others look at

    @property
    def draining(self) -> DrainingSlots[Consumer]:
        return self._dispatcher.draining

    @property
    def waiting(self) -> int:
        """Entries that were looked at and wait."""
        return sum(map(len, self._waiting.values())) + self._held_count + len(self._left)

    @property
    def paused_by(self) -> str | None:
        if self.waiting < self._look_ahead_max:
            return None
        return (
            f"{self.waiting} entries wait for consumers that cannot take them, {self._held_count} of them in "
            f"{len(self._held)} slots that drain or have no owner: no more is read"
        )

    @property
    def _look_ahead_max(self) -> int:
        """Computes the bound as Apache Pulsar 4.0 does from its two settings; 0 means no bound."""
        per_consumer = self._config.look_ahead_per_consumer * len(self._consumers)
        bounds = [each for each in (per_consumer, self._config.look_ahead_per_subscription) if each]
        return min(bounds, default=self._config.subscription_unacked_max or 200_000)

    # -- consumers come and go

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
        """Once for all that come and go together: it looks at everything that is held and that waits."""
        if not self._owners_moved:
            self._owners_moved = True
            asyncio.get_running_loop().call_soon(self._owners_changed)

    def _owners_changed(self) -> None:
        """Slots moved: find those that drain now, and whom each waiting entry waits for."""
        if not self._owners_moved:
            return
        self._owners_moved = False
        draining = self.draining
        if self._dispatcher.drains:
            held = [(each, slot_pending(each).in_slots()) for each in self._consumers]
            draining.owners_changed(held, self._dispatcher.selector.owner)
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
        """These slots drain no more: what they held back waits for their owners."""
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

    # -- memory of what waits with its bytes

    def give_back(self) -> None:
        """Releases memory of waiting entries; they are read again when they can be sent."""
        for waiting in self._waiting.values():
            waiting.drop_bytes()
        self._let_go()

    def _keep(self, byte_count: int) -> bool:
        """Room for the bytes of what begins to wait."""
        if self._held_bytes + byte_count > self._config.read_bytes_max or not self._budget.has_room(
            byte_count
        ):
            return False
        self._budget.reserve_read(self, byte_count)
        self._held_bytes += byte_count
        return True

    def _let_go(self, byte_count: int | None = None) -> None:
        """So many of the bytes that waited do not any more; None: all."""
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
            # All of it is gone, acknowledged meanwhile: what waits, or is new, may go on.
            return 1, 0
        if peeked is None:
            return None
        run, _ = peeked
        if self._outlet.skips(run):
            self._source.advance(len(run.entries))
            return len(run.entries), 0
        return self._one_by_one(self._outlet.within(run, entries_max, bytes_max))

    def _one_by_one(self, run: Run) -> tuple[int, int]:
        """Entries that may have been delivered before: each with what the cursor knows of it."""
        self._source.advance(len(run.entries))
        ledger_id = run.ledger_id
        size = 0
        for entry_id, slot in enumerate(slots_of(run.entries), run.first_entry_id):
            if self._cursor.is_acked(ledger_id, entry_id):
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
        """Nothing waits for the consumer that is older; the entry itself may, where it became due as well."""
        waiting = self._waiting.get(consumer)
        if waiting is None:
            return True
        oldest = waiting.oldest
        return oldest is None or packed <= oldest

    def _wait_again(self, packed: int) -> None:
        """An entry, known by its position, waits for its slot or for the slot's owner."""
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
        """Waiting entries of consumers with permits, by turns; None without one."""
        entries = size = 0
        again: list[tuple[int, int]] = []
        for consumer, waiting in list(self._waiting.items()):
            if entries >= entries_max or size >= bytes_max:
                break
            capacity = min(consumer.capacity, entries_max - entries)
            before = entries
            while capacity > 0 and size < bytes_max:
                if waiting.reads_again:
                    # They come back by the first step; its shares go on after that.
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
                # It had its turn: behind the others, which this step may not come to.
                self._waiting[consumer] = self._waiting.pop(consumer)
        self._source.replay_all(again)
        return (entries, size) if entries else None

    def _send_unacked(self, consumer: Consumer, share: Share) -> None:
        """Send what has waited, but for what was acknowledged meanwhile (it expired, or was skipped)."""
        is_acked, ledger_id = self._cursor.is_acked, share.ledger_id
        acked = [is_acked(ledger_id, entry_id) for entry_id in share.entry_ids]
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
        """The run and those that follow it at once, as one: dividing costs by run and consumer.

        Only entries of one message each; what they share as a run (when they came, the index of the first)
        is nobody's business any more.
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
        """Give new entries to the owners of their slots."""
        selector, draining = self._dispatcher.selector, self.draining.slots
        bounds, owners = selector.bounds, selector.owners
        slots = slots_of(run.entries)
        indexes: defaultdict[Consumer | None, list[int]] = defaultdict(list)
        # None: in a slot that drains or has no owner.
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
            assert consumer is not None, "taken out before"
            if consumer.sends_entry_metadata and metadata is None:
                metadata = run_entry_metadata(
                    run.publish_time_ms, run.first_index, len(run.entries), run.message_counts
                )
            self._give(
                consumer,
                share_of(run, slots, of_consumer, metadata if consumer.sends_entry_metadata else None),
            )

    def _give(self, consumer: Consumer, share: Share) -> None:
        """Send what the consumer can take; the rest waits for it."""
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
        """Send one entry with what the cursor knows of it."""
        pending = slot_pending(consumer)
        messages = self._outlet.send_one(consumer, run, individual=True)
        pending.add_in_slot(run.ledger_id, run.first_entry_id, messages, slot)
        consumer.note_unacked()
        self._outlet.count(run.ledger_id, run.first_entry_id, messages, run.byte_length)

    def _send_share(self, consumer: Consumer, share: Share) -> None:
        """Send new entries, whole."""
        messages, byte_count = share.messages, share.byte_length
        ledger_id, entry_ids = share.ledger_id, share.entry_ids
        consumer.deliver_entries(ledger_id, entry_ids, share.entries, messages, byte_count, share.metadata)
        slot_pending(consumer).add_entries(ledger_id, entry_ids, share.slots, share.message_counts)
        consumer.note_unacked()
        self._outlet.count(ledger_id, entry_ids[-1], messages, byte_count)

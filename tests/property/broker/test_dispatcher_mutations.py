"""The models of the dispatchers are worth what they catch: faults are planted in delivery, one at a time.

A mutation patches one function for one test, and each of the named models must fail within RUNS_MAX random
runs: a message is lost or delivered twice, order or permits are ignored, somebody waits for ever. One that
survives means that the model does not look at that promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from magnetar.broker.dispatch import shared
from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.dispatch.key_shared.draining import DrainingSlots
from magnetar.broker.dispatch.key_shared.sticky_key import slots_of
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.broker.subscriptions.entries.read_ahead import ReadAhead
from magnetar.broker.subscriptions.entries.replay_set import ReplaySet
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.subscriptions.types.exclusive import ExclusiveType
from magnetar.broker.subscriptions.types.failover import FailoverDelivery
from magnetar.broker.subscriptions.types.individual_delivery import IndividualDelivery
from magnetar.broker.subscriptions.types.key_shared import key_shared
from magnetar.broker.subscriptions.types.key_shared.key_shared import KeySharedDelivery
from magnetar.broker.subscriptions.types.key_shared.waiting_entries import Share, WaitingEntries
from magnetar.broker.subscriptions.types.ordered_delivery import OrderedDelivery
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor import Cursor

from tests.property.broker.test_key_shared_model import KeySharedMachine, OutOfOrderMachine, StickyMachine
from tests.property.broker.test_key_shared_turns_model import KeySharedTurnsMachine
from tests.property.broker.test_ordered_delivery_model import FailoverMachine, OrderedMachine
from tests.property.broker.test_shared_delivery_model import SharedMachine

Patch = pytest.MonkeyPatch
Machine = type[RuleBasedStateMachine]

ORDERED: tuple[Machine, ...] = (OrderedMachine, FailoverMachine)
KEYS: tuple[Machine, ...] = (KeySharedMachine, OutOfOrderMachine, StickyMachine)
INDIVIDUAL: tuple[Machine, ...] = (SharedMachine, *KEYS)
EVERY: tuple[Machine, ...] = (*ORDERED, *INDIVIDUAL)
RUNS_MAX = 10_000
"""Random runs within which a model has to see what is wrong."""


# --- lost ---


def the_last_entry_of_what_was_read_is_lost(patch: Patch) -> None:
    passing = EntrySource._passing

    def mutant(self: EntrySource, run: Run) -> list[Run]:
        if len(run.entries) > 3:
            run = run.slice(run.first_entry_id, run.last_entry_id - 1)
        return passing(self, run)

    patch.setattr(EntrySource, "_passing", mutant)


def one_entry_is_never_delivered_again(patch: Patch) -> None:
    add = ReplaySet.add

    def mutant(self: ReplaySet, ledger_id: int, entry_id: int) -> None:
        if entry_id != 3:
            add(self, ledger_id, entry_id)

    patch.setattr(ReplaySet, "add", mutant)


def what_a_leaver_held_is_lost(patch: Patch) -> None:
    for delivery in (IndividualDelivery, KeySharedDelivery):
        _when_one_leaves(patch, delivery, _forget_its_first)


def _forget_its_first(delivery: IndividualDelivery, leaver: Consumer) -> None:
    for ledger_id, entry_id in list(leaver.pending.positions())[:1]:
        leaver.pending.remove(ledger_id, entry_id)


def _when_one_leaves(
    patch: Patch, delivery: type[IndividualDelivery], first: Callable[[IndividualDelivery, Consumer], None]
) -> None:
    removed = delivery.consumer_removed

    def mutant(self: Any, consumer: Consumer) -> None:
        first(self, consumer)
        removed(self, consumer)

    patch.setattr(delivery, "consumer_removed", mutant)


def what_was_being_read_before_a_new_start_is_believed(patch: Patch) -> None:
    patch.setattr(ReadAhead, "drop", lambda self: None)


def the_next_is_lost_where_all_that_waited_was_acknowledged(patch: Patch) -> None:
    take = EntrySource.take_replayed

    def mutant(self: EntrySource, entries_max: int, bytes_max: int) -> tuple[int, list[Run]]:
        _, taken = take(self, entries_max, bytes_max)
        return len(taken), taken

    patch.setattr(EntrySource, "take_replayed", mutant)


def what_waited_for_a_leaver_is_lost(patch: Patch) -> None:
    take_all = WaitingEntries.take_all
    patch.setattr(WaitingEntries, "take_all", lambda self: take_all(self)[1:])


# --- twice ---


def what_was_read_is_given_out_twice(patch: Patch) -> None:
    passing = EntrySource._passing

    def mutant(self: EntrySource, run: Run) -> list[Run]:
        parts = passing(self, run)
        return [*parts, *parts] if len(run.entries) == 2 else parts

    patch.setattr(EntrySource, "_passing", mutant)


def what_is_asked_for_again_stays_held(patch: Patch) -> None:
    redeliver = IndividualDelivery.redeliver

    def mutant(
        self: IndividualDelivery, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None
    ) -> None:
        held = list(consumer.pending.positions())
        redeliver(self, consumer, positions, epoch)
        for position in held if positions is None else set(held) & set(positions):
            consumer.pending.add(*position, 1)

    patch.setattr(IndividualDelivery, "redeliver", mutant)


def what_others_hold_is_given_to_who_asks(patch: Patch) -> None:
    redeliver = IndividualDelivery.redeliver

    def mutant(
        self: IndividualDelivery, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None
    ) -> None:
        redeliver(self, consumer, positions, epoch)
        for ledger_id, entry_id in positions or ():
            if not self._cursor.is_acked(ledger_id, entry_id):
                self._source.replay(ledger_id, entry_id)

    patch.setattr(IndividualDelivery, "redeliver", mutant)


def acknowledged_entries_are_given_out(patch: Patch) -> None:
    patch.setattr(Cursor, "unacked_ranges", lambda self, run: [(run.first_entry_id, run.last_entry_id)])
    patch.setattr(Cursor, "is_acked", lambda self, ledger_id, entry_id: False)


def a_second_exclusive_consumer_is_let_in(patch: Patch) -> None:
    patch.setattr(ExclusiveType, "admit", lambda self, subscription, consumer, connected: None)
    patch.setattr(ExclusiveDispatcher, "add", lambda self, consumer: setattr(self, "_consumer", consumer))


def everybody_may_start_the_stream_anew(patch: Patch) -> None:
    patch.setattr(FailoverDelivery, "redeliver", OrderedDelivery.redeliver)


# --- order ---


def what_is_asked_for_again_comes_after_what_is_new(patch: Patch) -> None:
    peek = EntrySource.peek

    def mutant(self: EntrySource, entries_max: int) -> tuple[Run, bool] | None:
        if self._fresh and not self._replayed:
            return self._fresh[0], False
        return peek(self, entries_max)

    patch.setattr(EntrySource, "peek", mutant)


def a_new_active_consumer_goes_on_where_the_old_one_was(patch: Patch) -> None:
    patch.setattr(FailoverDelivery, "rewind", lambda self: None)


def a_switch_is_at_once(patch: Patch) -> None:
    changed = FailoverDelivery._changed

    def mutant(self: FailoverDelivery) -> bool:
        self._delay_s = 0
        return changed(self)

    patch.setattr(FailoverDelivery, "_changed", mutant)


def messages_go_out_while_a_switch_is_due(patch: Patch) -> None:
    patch.setattr(FailoverDelivery, "step", OrderedDelivery.step)


def the_first_comer_stays_active(patch: Patch) -> None:
    choose = FailoverDispatcher._choose

    def mutant(self: FailoverDispatcher[Any]) -> None:
        if self.active not in self.consumers:
            choose(self)

    patch.setattr(FailoverDispatcher, "_choose", mutant)


def no_slot_drains(patch: Patch) -> None:
    patch.setattr(DrainingSlots, "owners_changed", lambda self, held, owner, now_ms: None)


def a_slot_drains_no_more_after_one_acknowledgement(patch: Patch) -> None:
    settled = DrainingSlots.settled

    def mutant(self: DrainingSlots[Any], consumer: Any, slots: Iterable[int]) -> list[int]:
        slots = list(slots)
        for slot in slots:
            draining = self.slots.get(slot)
            if draining is not None and draining.holder is consumer:
                draining.unacked = 1
        return settled(self, consumer, slots)

    patch.setattr(DrainingSlots, "settled", mutant)


def what_is_new_overtakes_what_waits(patch: Patch) -> None:
    step, give = KeySharedDelivery.step, KeySharedDelivery._give

    def mutant(self: KeySharedDelivery, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        if not self._source.replaying:
            done = self._deliver_new(entries_max, bytes_max)
            if done is not None:
                return done
        return step(self, entries_max, bytes_max)

    def give_at_once(self: KeySharedDelivery, consumer: Consumer, share: Share) -> None:
        if consumer.capacity >= share.messages:
            self._send_share(consumer, share)
        else:
            give(self, consumer, share)

    patch.setattr(KeySharedDelivery, "step", mutant)
    patch.setattr(KeySharedDelivery, "_give", give_at_once)


def what_comes_again_overtakes_what_waits(patch: Patch) -> None:
    patch.setattr(KeySharedDelivery, "_is_next", lambda self, consumer, packed: True)


def what_comes_again_waits_before_what_is_older(patch: Patch) -> None:
    def mutant(self: WaitingEntries, packed: int) -> int:
        self._again.append(packed)
        return 0

    patch.setattr(WaitingEntries, "add_again", mutant)


def slots_are_of_the_key_before(patch: Patch) -> None:
    def mutant(entries: Sequence[bytes]) -> list[int]:
        slots = list(slots_of(entries))
        return [slots[-1], *slots[:-1]]

    patch.setattr(key_shared, "slots_of", mutant)


# --- permits, limits, turns ---


def _capacity() -> Callable[[Consumer], int]:
    found: Callable[[Consumer], int] = vars(Consumer)["capacity"].fget
    return found


def permits_are_ignored(patch: Patch) -> None:
    patch.setattr(Consumer, "capacity", property(lambda self: 10))


def one_permit_too_many(patch: Patch) -> None:
    capacity = _capacity()

    def mutant(self: Consumer) -> int:
        return capacity(self) or (1 if self.permits == 0 and self.peer.writable else 0)

    patch.setattr(Consumer, "capacity", property(mutant))


def a_full_socket_is_written_to(patch: Patch) -> None:
    capacity = _capacity()

    def mutant(self: Consumer) -> int:
        client: Any = self.peer
        was, client.writable = client.writable, True
        result = capacity(self)
        client.writable = was
        return result

    patch.setattr(Consumer, "capacity", property(mutant))


def a_batch_costs_one_permit(patch: Patch) -> None:
    deliver = Consumer.deliver

    def mutant(self: Consumer, run: Run, messages: int, **options: Any) -> None:
        deliver(self, run, messages, **options)
        self.permits += messages - len(run.entries)

    patch.setattr(Consumer, "deliver", mutant)


def permits_wake_nobody(patch: Patch) -> None:
    def mutant(self: Subscription, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits

    patch.setattr(Subscription, "add_permits", mutant)


def the_limit_of_a_consumer_is_ignored(patch: Patch) -> None:
    patch.setattr(Consumer, "note_unacked", lambda self: None)


def the_limit_of_a_subscription_is_ignored(patch: Patch) -> None:
    patch.setattr(Subscription, "_unacked_room", lambda self: 1 << 20)


def worse_levels_get_as_much(patch: Patch) -> None:
    patch.setattr(shared, "_level", lambda consumer: 0)


def the_place_moves_on_at_every_look(patch: Patch) -> None:
    look, took = SharedDispatcher.next, SharedDispatcher.took

    def mutant(self: SharedDispatcher[Any]) -> tuple[Any, int] | None:
        choice = look(self)
        if choice is not None:
            took(self)
        return choice

    patch.setattr(SharedDispatcher, "next", mutant)
    patch.setattr(SharedDispatcher, "took", lambda self: None)


def the_place_never_moves_on(patch: Patch) -> None:
    patch.setattr(SharedDispatcher, "took", lambda self: None)


def a_leaver_takes_the_turn_of_another(patch: Patch) -> None:
    remove = SharedDispatcher.remove

    def mutant(self: SharedDispatcher[Any], consumer: Any) -> None:
        remove(self, consumer)
        for members in self._rounds:
            members.rotate(-1)

    patch.setattr(SharedDispatcher, "remove", mutant)


def the_first_that_waits_always_comes_first(patch: Patch) -> None:
    deliver = KeySharedDelivery._deliver_waiting

    def mutant(self: KeySharedDelivery, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        before = list(self._waiting)
        done = deliver(self, entries_max, bytes_max)
        self._waiting = {each: self._waiting[each] for each in before if each in self._waiting}
        return done

    patch.setattr(KeySharedDelivery, "_deliver_waiting", mutant)


def nobody_counts_what_is_asked_for_again(patch: Patch) -> None:
    patch.setattr(Cursor, "count_redelivery", lambda self, ledger_id, entry_id: None)


def what_a_leaver_held_counts_as_asked_for(patch: Patch) -> None:
    for delivery in (IndividualDelivery, KeySharedDelivery):
        _when_one_leaves(patch, delivery, _count_all_of_it)


def _count_all_of_it(delivery: IndividualDelivery, leaver: Consumer) -> None:
    for ledger_id, entry_id in leaver.pending.positions():
        delivery._cursor.count_redelivery(ledger_id, entry_id)


def a_slot_drains_for_ever(patch: Patch) -> None:
    patch.setattr(KeySharedDelivery, "_release", lambda self, slots: None)


def acknowledging_frees_nobody(patch: Patch) -> None:
    patch.setattr(Subscription, "_settle", lambda self, consumer, ledger_id, entry_id: 0)


def memory_that_was_read_into_is_never_given_back(patch: Patch) -> None:
    patch.setattr(EntrySource, "_release", lambda self, byte_count: None)


MUTATIONS: list[tuple[Callable[[Patch], None], tuple[Machine, ...]]] = [
    (the_last_entry_of_what_was_read_is_lost, EVERY),
    (one_entry_is_never_delivered_again, INDIVIDUAL),
    (what_a_leaver_held_is_lost, INDIVIDUAL),
    (what_was_being_read_before_a_new_start_is_believed, (OrderedMachine, SharedMachine)),
    (the_next_is_lost_where_all_that_waited_was_acknowledged, (SharedMachine,)),
    (what_waited_for_a_leaver_is_lost, KEYS),
    (what_was_read_is_given_out_twice, EVERY),
    (what_is_asked_for_again_stays_held, INDIVIDUAL),
    (what_others_hold_is_given_to_who_asks, (SharedMachine,)),
    (acknowledged_entries_are_given_out, EVERY),
    (a_second_exclusive_consumer_is_let_in, (OrderedMachine,)),
    (everybody_may_start_the_stream_anew, (FailoverMachine,)),
    (what_is_asked_for_again_comes_after_what_is_new, (SharedMachine, KeySharedMachine)),
    (a_new_active_consumer_goes_on_where_the_old_one_was, (FailoverMachine,)),
    (a_switch_is_at_once, (FailoverMachine,)),
    (messages_go_out_while_a_switch_is_due, (FailoverMachine,)),
    (the_first_comer_stays_active, (FailoverMachine,)),
    (no_slot_drains, (KeySharedMachine,)),
    (a_slot_drains_no_more_after_one_acknowledgement, (KeySharedMachine,)),
    (what_is_new_overtakes_what_waits, (KeySharedMachine,)),
    (what_comes_again_overtakes_what_waits, (KeySharedMachine,)),
    (what_comes_again_waits_before_what_is_older, (KeySharedMachine,)),
    (slots_are_of_the_key_before, KEYS),
    (permits_are_ignored, EVERY),
    (one_permit_too_many, EVERY),
    (a_full_socket_is_written_to, INDIVIDUAL),
    (a_batch_costs_one_permit, INDIVIDUAL),
    (permits_wake_nobody, EVERY),
    (the_limit_of_a_consumer_is_ignored, (SharedMachine,)),
    (the_limit_of_a_subscription_is_ignored, (SharedMachine,)),
    (worse_levels_get_as_much, (SharedMachine,)),
    (the_place_moves_on_at_every_look, (SharedMachine,)),
    (the_place_never_moves_on, (SharedMachine,)),
    (a_leaver_takes_the_turn_of_another, (SharedMachine,)),
    (the_first_that_waits_always_comes_first, (KeySharedTurnsMachine,)),
    (nobody_counts_what_is_asked_for_again, INDIVIDUAL),
    (what_a_leaver_held_counts_as_asked_for, INDIVIDUAL),
    (a_slot_drains_for_ever, (KeySharedMachine,)),
    (acknowledging_frees_nobody, INDIVIDUAL),
    (memory_that_was_read_into_is_never_given_back, (*ORDERED, SharedMachine)),
]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mutation", "machine"),
    [(mutation, machine) for mutation, machines in MUTATIONS for machine in machines],
    ids=lambda value: value.__name__,
)
def test_no_planted_fault_survives(
    mutation: Callable[[Patch], None], machine: Machine, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, IndexError)):
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=RUNS_MAX,
                stateful_step_count=30,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )

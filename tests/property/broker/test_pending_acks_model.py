"""Acknowledgements in transactions, in one subscription, against sets of messages.

Consumers acknowledge in transactions and plainly, whole entries, single messages of batches and cumulatively,
while they come, go and ask for redelivery, and transactions end in any order. Conflicts are those of the
model. Each delivery has exactly the messages that are free. What is free is with a consumer. In the end
exactly what was not acknowledged comes again, and nothing is pending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import TransactionConflict
from magnetar.common.naming.txn_id import TxnId

from tests.unit.broker.subscriptions.serving import LEDGER_ENTRIES, Client, Message, client_of
from tests.unit.broker.subscriptions.transactional_topic import TransactionalServing

TXNS = [TxnId(0, 0), TxnId(0, 1), TxnId(1, 0)]
SIZE = 3
"""Messages of every entry."""
WHOLE = (1 << SIZE) - 1

ENTRIES = st.one_of(st.integers(0, 1), st.integers(0, 1), st.integers(0, 13))
"""Few mostly, so that acknowledgements meet."""
BITS = st.integers(1, WHOLE)
TXN = st.sampled_from(TXNS)

Mid = tuple[int, int]
"""A message: (number of the entry, index in the batch)."""


@dataclass
class Cumulative:
    """Everything before entry `end`, and these messages of it."""

    txn: TxnId
    end: int
    bits: int


def messages_of(number: int, bits: int = WHOLE) -> set[Mid]:
    return {(number, index) for index in range(SIZE) if bits >> index & 1}


def bits_of(number: int, messages: set[Mid]) -> int:
    return sum(1 << index for at, index in messages if at == number)


class PendingAcksMachine(RuleBasedStateMachine):
    """One subscription of a type."""

    sub_type = SubType.Shared
    consumers_max = 3

    @initialize(cached_from=st.sampled_from([0, 5, 1_000]), entries=st.integers(1, 12))
    def start(self, cached_from: int, entries: int) -> None:
        self.serving = TransactionalServing(self.sub_type, config=DispatchConfig(read_entries_max=5))
        self.serving.topic.cached_from = cached_from
        self.ordered = self.sub_type == SubType.Exclusive
        self.consumers: list[Consumer] = []
        self.entries = 0
        self.acked: set[Mid] = set()
        self.pending: dict[Mid, TxnId] = {}
        """Messages that are withheld."""
        self.whole: dict[TxnId, set[int]] = {}
        """Entries that a transaction acknowledged as a whole."""
        self.cumulative: Cumulative | None = None
        self.holder: dict[Mid, Client] = {}
        """The last consumer that was sent a message, unless it was taken back."""
        self.publish(entries)

    # What is free, and who has it

    def free(self) -> set[Mid]:
        every = {each for number in range(self.entries) for each in messages_of(number)}
        return every - self.acked - self.pending.keys()

    def check(self, client: Client, message: Message) -> None:
        sent = message.ack_set[0] if message.ack_set else WHOLE
        assert sent == bits_of(message.number, self.free()), "the free messages, and no others"
        for each in messages_of(message.number, sent):
            self.holder[each] = client

    @invariant()
    def what_is_free_is_with_a_consumer(self) -> None:
        if not getattr(self, "consumers", None):
            return
        free = self.free()
        assert free <= self.holder.keys(), "nothing that is free is left behind"
        if not self.ordered:
            assert self.serving.subscription.unacked_messages == len(free)

    # What is published and who consumes

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        count = min(count, 14 - self.entries)
        self.entries += count
        self.serving.publish(count, SIZE)

    @precondition(lambda self: len(self.consumers) < self.consumers_max)
    @rule()
    def join(self) -> None:
        consumer = self.serving.consumer(f"c{len(self.consumers)}")
        client_of(consumer).on_message = self.check
        self.consumers.append(consumer)

        def connect() -> None:
            self.serving.subscription.add_consumer(consumer, self.sub_type)
            self.serving.subscription.add_permits(consumer, 10_000)

        self.serving.do(connect)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.take_back(consumer)
        self.serving.leave(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.take_back(consumer)
        self.serving.redeliver(consumer)

    def take_back(self, consumer: Consumer) -> None:
        gone = client_of(consumer)
        self.holder = {each: client for each, client in self.holder.items() if client is not gone}

    # Plain acknowledgements

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), number=ENTRIES, bits=BITS)
    def acknowledge(self, data: st.DataObject, number: int, bits: int) -> None:
        if number >= self.entries:
            return
        consumer = data.draw(st.sampled_from(self.consumers))
        self.acked |= messages_of(number, bits)
        position, subscription = self.serving.topic.position_of(number), self.serving.subscription
        if bits == WHOLE:
            self.serving.ack(consumer, number)
        else:
            self.serving.do(lambda: subscription.ack_batch(*position, bits, SIZE, consumer))

    @precondition(lambda self: self.consumers and self.ordered)
    @rule(number=ENTRIES)
    def acknowledge_up_to(self, number: int) -> None:
        if number < self.entries:
            self.acked |= {each for every in range(number + 1) for each in messages_of(every)}
            self.serving.ack_cumulative(self.consumers[0], number)

    @rule(number=st.integers(0, 4))
    def skip(self, number: int) -> None:
        if number >= self.entries:
            return
        self.acked |= {each for every in range(number + 1) for each in messages_of(every)}
        self.pending = {each: txn for each, txn in self.pending.items() if each[0] > number}
        self.whole = {txn: {each for each in entries if each > number} for txn, entries in self.whole.items()}
        cumulative = self.cumulative
        if cumulative is not None and cumulative.end - 1 <= number:
            self.cumulative = None
            if cumulative.end > number:
                tail = messages_of(cumulative.end, cumulative.bits)
                self.pending |= dict.fromkeys(tail, cumulative.txn)
        position = self.serving.topic.position_of(number)
        self.serving.do(lambda: self.serving.subscription.skip_to(position))

    # Acknowledgements in transactions

    def tail(self, txn: TxnId | None = None) -> set[Mid]:
        """Returns the messages of a batch that this transaction, or any, acknowledges cumulatively."""
        cumulative = self.cumulative
        if cumulative is None or txn not in (None, cumulative.txn):
            return set()
        return messages_of(cumulative.end, cumulative.bits)

    def own(self, txn: TxnId) -> set[Mid]:
        return {each for each, by in self.pending.items() if by == txn} | self.tail(txn)

    def taken(self, txn: TxnId) -> set[Mid]:
        """Returns the messages that a transaction may not acknowledge one by one."""
        return self.acked | (self.pending.keys() | self.tail()) - self.own(txn)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), txn=TXN, numbers=st.sets(ENTRIES, min_size=1, max_size=3))
    def acknowledge_entries_in(self, data: st.DataObject, txn: TxnId, numbers: set[int]) -> None:
        numbers = {number for number in numbers if number < self.entries}
        whole = self.whole.setdefault(txn, set())
        asked = {each for number in numbers - whole for each in messages_of(number)}
        conflict = bool(asked & self.taken(txn))
        if not conflict:
            self.pending |= dict.fromkeys(asked, txn)
            whole |= numbers
        consumer = data.draw(st.sampled_from(self.consumers))
        self.expect(conflict, lambda: self.serving.ack_in(txn, consumer, *numbers))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), txn=TXN, number=ENTRIES, bits=BITS)
    def acknowledge_messages_in(self, data: st.DataObject, txn: TxnId, number: int, bits: int) -> None:
        if number >= self.entries:
            return
        asked = messages_of(number, bits)
        if number in self.whole.get(txn, ()):
            asked = set()
        conflict = bool((asked - self.own(txn)) & self.taken(txn))
        if not conflict:
            own_tail = self.tail(txn)
            if self.cumulative is not None and own_tail and self.cumulative.end == number:
                self.cumulative.bits |= bits
            else:
                self.pending |= dict.fromkeys(asked, txn)
        consumer = data.draw(st.sampled_from(self.consumers))
        self.expect(conflict, lambda: self.serving.ack_bits_in(txn, consumer, number, bits, SIZE))

    @precondition(lambda self: self.consumers and self.ordered)
    @rule(txn=TXN, end=st.one_of(st.integers(1, 2), st.integers(1, 13)), bits=st.integers(0, WHOLE))
    def acknowledge_up_to_in(self, txn: TxnId, end: int, bits: int) -> None:
        """Acknowledges everything before entry `end` and these messages of it."""
        if end >= self.entries or end % LEDGER_ENTRIES == 0:
            return
        conflict = self.cumulative_conflict(txn, end, bits)
        if not conflict:
            self.accept_cumulative(txn, end, bits)
        consumer = self.consumers[0]
        if bits:
            act = lambda: self.serving.ack_into_batch_in(txn, consumer, end, bits, SIZE)  # noqa: E731
        else:
            act = lambda: self.serving.ack_cumulative_in(txn, consumer, end - 1)  # noqa: E731
        self.expect(conflict, act)

    def cumulative_conflict(self, txn: TxnId, end: int, bits: int) -> bool:
        others = {each for each, by in self.pending.items() if by != txn}
        foreign_whole = any(end in entries for by, entries in self.whole.items() if by != txn)
        if bits and (foreign_whole or messages_of(end, bits) & others):
            return True
        if self.cumulative is not None:
            before = self.cumulative
            return before.txn != txn or (end, bits) < (before.end, before.bits)
        first = next(
            (each for each in range(self.entries) if not messages_of(each) <= self.acked), self.entries
        )
        acked = bits_of(end, self.acked) if bits else 0
        return (end, bits) <= (first, acked if first == end else 0)

    def accept_cumulative(self, txn: TxnId, end: int, bits: int) -> None:
        whole = {each for number in self.whole.get(txn, ()) for each in messages_of(number)}
        own_bits = {each for each in self.own(txn) - self.tail(txn) if each not in whole}
        into = bits_of(end, own_bits | self.tail(txn)) if bits else 0
        covered = {each for each in own_bits if each[0] < end or (bits and each[0] == end)}
        for each in covered:
            del self.pending[each]
            # Acknowledged cumulatively from now on: it comes again when the consumer asks.
            self.holder.setdefault(each, client_of(self.consumers[0]))
        before = self.cumulative
        if before is not None and before.end == end:
            bits |= before.bits
        self.cumulative = Cumulative(txn, end, bits | into)

    def expect(self, conflict: bool, act: Callable[[], object]) -> None:
        try:
            act()
        except TransactionConflict:
            assert conflict, "a conflict with nothing"
        else:
            assert not conflict, "a conflict that was not noticed"

    @rule(txn=TXN, abort=st.booleans())
    def end(self, txn: TxnId, abort: bool) -> None:
        settled = {each for each, by in self.pending.items() if by == txn}
        self.pending = {each: by for each, by in self.pending.items() if by != txn}
        self.whole.pop(txn, None)
        cumulative = self.cumulative
        if cumulative is not None and cumulative.txn == txn:
            self.cumulative = None
            if not abort:
                self.acked |= messages_of(cumulative.end, cumulative.bits)
                self.acked |= {each for number in range(cumulative.end) for each in messages_of(number)}
        if abort:
            self.holder = {each: by for each, by in self.holder.items() if each not in settled}
        else:
            self.acked |= settled
        self.serving.end(txn, abort=abort)

    def teardown(self) -> None:
        if not hasattr(self, "serving"):
            return
        for number, txn in enumerate(TXNS):
            self.end(txn, abort=number == 1)
        assert self.serving.topic.pending(self.serving.cursor) is None
        assert not self.serving.topic.acks.withheld
        assert not self.serving.topic.acks.batches
        for consumer in list(self.consumers):
            self.consumers.remove(consumer)
            self.take_back(consumer)
            self.serving.leave(consumer)
        self.join()
        self.what_is_free_is_with_a_consumer()
        (last,) = self.consumers
        numbers = client_of(last).numbers
        assert sorted(numbers) == sorted({number for number, _ in self.free()})
        self.serving.ack(last, *numbers)
        assert self.serving.cursor.backlog() == 0
        self.serving.close()


class ExclusiveMachine(PendingAcksMachine):
    sub_type = SubType.Exclusive
    consumers_max = 1


class KeySharedMachine(PendingAcksMachine):
    sub_type = SubType.Key_Shared
    consumers_max = 1  # another one waits until entries of the slots it takes over are acknowledged


class LongSharedMachine(PendingAcksMachine):
    """Runs more examples: some mistakes in counts need hundreds."""


_USUAL = settings(max_examples=12, stateful_step_count=20, deadline=None)

TestExclusive = ExclusiveMachine.TestCase
TestExclusive.settings = _USUAL
TestShared = PendingAcksMachine.TestCase
TestShared.settings = _USUAL
TestKeyShared = KeySharedMachine.TestCase
TestKeyShared.settings = _USUAL
TestLongShared = pytest.mark.full(LongSharedMachine.TestCase)
TestLongShared.settings = settings(max_examples=400, stateful_step_count=25, deadline=None)

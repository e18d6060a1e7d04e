"""Acknowledgements as a broker understands their commands, against the messages that were acknowledged."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.client.consumer.acknowledgements import GROUP_MAX, Acknowledgements, Position
from magnetar.client.messages import EntryLeft
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.pulsar_pb2 import CommandAck

from tests.examples import examples

STEP = st.tuples(
    st.sampled_from(["individual", "individual", "cumulative", "send"]),
    st.integers(0, 99),
    st.integers(0, 99),
)
SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=6)


class Broker:
    """The subscription: acknowledged messages by entry, as bits; a single message is a batch of one."""

    def __init__(self, sizes: dict[Position, int]) -> None:
        self.sizes = sizes
        self.acked = dict.fromkeys(sizes, 0)

    def apply(self, command: CommandAck) -> None:
        for each in command.message_id:
            position = each.ledgerId, each.entryId
            if command.ack_type == CommandAck.Cumulative:
                for earlier in self.sizes:
                    if earlier < position:
                        self.acked[earlier] = (1 << self.sizes[earlier]) - 1
            if position in self.sizes:
                size = self.sizes[position]
                bits = words_to_acked_bits(each.ack_set, size) if each.ack_set else (1 << size) - 1
                self.acked[position] |= bits


@settings(max_examples=examples(150))
@given(
    first=SIZES,
    second=SIZES,
    by_batch_index=st.booleans(),
    group_max=st.integers(1, 5),
    steps=st.lists(STEP, max_size=30),
)
def test_a_broker_learns_what_was_acknowledged_and_no_more(
    first: list[int],
    second: list[int],
    by_batch_index: bool,
    group_max: int,
    steps: list[tuple[str, int, int]],
) -> None:
    entries = {(1, index): EntryLeft([(1, index)], size) for index, size in enumerate(first)}
    entries |= {(2, index + 3): EntryLeft([(2, index + 3)], size) for index, size in enumerate(second)}
    broker = Broker({position: max(left.batch_size, 1) for position, left in entries.items()})
    wanted = dict.fromkeys(entries, 0)
    tracker = Acknowledgements(by_batch_index=by_batch_index, group_max=group_max)
    order = sorted(entries)

    def send() -> None:
        for command in tracker.commands(7):
            assert command.consumer_id == 7
            assert len(command.message_id) <= GROUP_MAX
            broker.apply(command)
        assert not tracker.is_pending

    for action, number, index in steps:
        position = order[number % len(order)]
        left = entries[position]
        batch_index = index % left.batch_size if left.batch_size else -1
        if action == "send":
            send()
        elif action == "individual":
            wanted[position] |= 1 << max(batch_index, 0)
            if tracker.individual(batch_index, left):
                send()
        else:
            for earlier in order:
                if earlier < position:
                    wanted[earlier] = (1 << broker.sizes[earlier]) - 1
            wanted[position] |= (2 << max(batch_index, 0)) - 1
            if tracker.cumulative(batch_index, left):
                send()
        for each, bits in broker.acked.items():
            assert not bits & ~wanted[each], f"{each} has messages that were not acknowledged"
            if tracker.is_acknowledged(each):
                assert wanted[each] == (1 << broker.sizes[each]) - 1
    send()
    for each, bits in wanted.items():
        whole = (1 << broker.sizes[each]) - 1
        assert broker.acked[each] == (bits if by_batch_index or bits == whole else 0)

"""Acknowledgements of one consumer, grouped until their commands are sent.

Individual acknowledgements name whole entries; those of a chunked message name all its chunks. Part of a
batch is sent as an ack set if the subscription acknowledges by batch index, and otherwise once the batch is
complete. A cumulative acknowledgement covers everything before it. Positions are (ledger, entry).
"""

from __future__ import annotations

from typing import Final

from magnetar.client.errors import ClientError
from magnetar.client.messages import EntryLeft
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.common.wire.pulsar_pb2 import CommandAck, MessageIdData
from magnetar.common.wire.varint import ascending, encode_varint

GROUP_MAX: Final = 1_000
"""Default number of entries after which a group is sent, and the entries that one command may name."""

Position = tuple[int, int]
"""The ids of a ledger and of an entry."""


class Acknowledgements:
    """Collects acknowledgements; the caller sends the commands that `commands` returns.

    The caller sends when a method returns True (the group is full), some time after the first one that is not
    sent, and before the consumer closes. What is pending is bounded by what was delivered and not yet
    acknowledged; it survives a new connection, since positions stay valid. Call `reset` after a seek.
    """

    __slots__ = (
        "_by_batch_index",
        "_complete",
        "_cumulative",
        "_cumulative_left",
        "_cumulative_sent",
        "_group_max",
        "_partial",
        "_shared",
    )

    def __init__(
        self,
        *,
        shared: bool = False,
        by_batch_index: bool = False,
        group_max: int = GROUP_MAX,
    ) -> None:
        """`shared`: the subscription is Shared or Key_Shared, which have no cumulative acknowledgement."""
        self._shared = shared
        self._by_batch_index = by_batch_index
        self._group_max = group_max
        self._complete: dict[Position, None] = {}
        self._partial: dict[Position, EntryLeft] = {}
        self._cumulative: Position | None = None
        self._cumulative_left: EntryLeft | None = None
        """The batch whose first messages the cumulative acknowledgement covers; None if it ends an entry."""
        self._cumulative_sent = True

    def individual(self, batch_index: int, entry: EntryLeft) -> bool:
        """Acknowledges one message of an entry; the index is -1 outside a batch. Returns whether the group is
        full.
        """
        complete = self._complete
        if entry.batch_size:
            if not entry.acknowledge(batch_index):
                if self._by_batch_index:
                    self._partial[entry.ids[0]] = entry
                return self._is_full()
            self._partial.pop(entry.ids[0], None)
        if len(entry.ids) == 1:
            complete[entry.ids[0]] = None
        else:
            for position in entry.ids:
                complete[position] = None
        return len(complete) >= self._group_max

    def cumulative(self, batch_index: int, entry: EntryLeft) -> bool:
        """Acknowledges a message and all before it. Returns whether to send at once.

        Without acknowledgement by batch index, part of a batch counts once the batch is complete; the entries
        before it count now, except those of earlier ledgers if the batch is its ledger's first entry.
        Raises ClientError on a subscription that several consumers share.
        """
        if self._shared:
            raise ClientError(
                "Shared and Key_Shared subscriptions have no cumulative acknowledgement; "
                "acknowledge each message"
            )
        position, left = entry.ids[-1], None
        if entry.batch_size and not entry.acknowledge_through(batch_index):
            if self._by_batch_index:
                left = entry
            elif position[1] == 0:
                return False
            else:
                position = position[0], position[1] - 1
        # In the same batch a later call covers more: the bits are read when the command is made.
        if self._cumulative is not None and position < self._cumulative:
            return False
        if position == self._cumulative and self._cumulative_left is None:
            return False
        self._cumulative, self._cumulative_left, self._cumulative_sent = position, left, False
        self._forget_covered()
        return self._is_full()

    def is_acknowledged(self, position: Position) -> bool:
        """Returns whether all messages of an entry are acknowledged, so that a redelivered one is dropped."""
        return position in self._complete or (self._cumulative is not None and self._is_covered(position))

    @property
    def is_pending(self) -> bool:
        """Whether there is something to send."""
        return bool(self._complete or self._partial or not self._cumulative_sent)

    def commands(self, consumer_id: int) -> list[CommandAck]:
        """Returns the commands to send, without request ids, and begins a new group.

        A group is one command, whatever its size up to GROUP_MAX: a connection that ends between two would
        part the chunks of a message.
        """
        made: list[CommandAck] = []
        most = max(self._group_max, GROUP_MAX)
        if self._cumulative is not None and not self._cumulative_sent:
            self._cumulative_sent = True
            last = MessageIdData(ledgerId=self._cumulative[0], entryId=self._cumulative[1])
            if self._cumulative_left is not None:
                _add_ack_set(last, self._cumulative_left)
            made.append(
                CommandAck(consumer_id=consumer_id, ack_type=CommandAck.Cumulative, message_id=[last])
            )
        ids = list(self._complete)
        self._complete.clear()
        partial = [_part_of(position, left) for position, left in self._partial.items()]
        self._partial.clear()
        made += [_individual(consumer_id, ids[start : start + most]) for start in range(0, len(ids), most)]
        for start in range(0, len(partial), most):
            some = partial[start : start + most]
            made.append(CommandAck(consumer_id=consumer_id, ack_type=CommandAck.Individual, message_id=some))
        return made

    def forget_cumulative(self) -> None:
        """Forgets the cumulative acknowledgement that was sent, since the broker may not have it: it is sent
        when the application repeats it, and what it covers is not dropped when it comes again.
        """
        if self._cumulative_sent:
            self._cumulative = self._cumulative_left = None

    def reset(self) -> None:
        """Forgets everything: after a seek, earlier acknowledgements must not be sent."""
        self._complete.clear()
        self._partial.clear()
        self._cumulative = self._cumulative_left = None
        self._cumulative_sent = True

    def _is_full(self) -> bool:
        return len(self._complete) + len(self._partial) >= self._group_max

    def _forget_covered(self) -> None:
        """Drops individual acknowledgements that the cumulative one includes."""
        for position in [each for each in self._complete if self._is_covered(each)]:
            del self._complete[position]
        for position in [each for each in self._partial if self._is_covered(each)]:
            del self._partial[position]

    def _is_covered(self, position: Position) -> bool:
        """Returns whether the cumulative acknowledgement includes an entry as a whole."""
        if self._cumulative is None or position > self._cumulative:
            return False
        return position < self._cumulative or self._cumulative_left is None


def ack_set_of(batch_index: int, batch_size: int, *, cumulative: bool) -> list[int]:
    """Returns the wire's ack set for one message of a batch, or for all up to it: words in which a bit means
    that the message is still unacknowledged.
    """
    bits = (2 << batch_index) - 1 if cumulative else 1 << batch_index
    return acked_bits_to_words(bits, batch_size)


def _add_ack_set(message_id: MessageIdData, left: EntryLeft) -> None:
    message_id.ack_set.extend(acked_bits_to_words(left.acked_bits, left.batch_size))
    message_id.batch_size = left.batch_size


def _part_of(position: Position, left: EntryLeft) -> MessageIdData:
    some = MessageIdData(ledgerId=position[0], entryId=position[1])
    _add_ack_set(some, left)
    return some


def _individual(consumer_id: int, positions: list[Position]) -> CommandAck:
    command = CommandAck(consumer_id=consumer_id, ack_type=CommandAck.Individual)
    command.MergeFromString(encode_positions(positions))
    return command


def encode_positions(positions: list[Position]) -> bytes:
    """Returns the field message_id of an Ack: by hand, since there is one for each message."""
    by_ledger: dict[int, list[int]] = {}
    for ledger_id, entry_id in positions:
        by_ledger.setdefault(ledger_id, []).append(entry_id)
    encoded: list[bytes] = []
    for ledger_id, entry_ids in by_ledger.items():
        entry_ids.sort()
        ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
        for heads, tail in ascending(entry_ids):
            # All of one run are equally long: their beginnings are the same bytes.
            begin = b"\x1a%c%b" % (len(ledger) + len(heads[0]) + len(tail), ledger)
            encoded.append(begin + (tail + begin).join(heads) + tail)
    return b"".join(encoded)

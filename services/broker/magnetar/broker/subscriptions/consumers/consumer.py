"""A consumer: the broker's side of one client consumer, with its permits and unacknowledged entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from magnetar.broker.client_endings import EndCode
from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.peer import Peer
from magnetar.broker.reason import Reason
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumers.pending_acks import PendingAcks
from magnetar.broker.versions import ACTIVE_CONSUMER_CHANGE, END_OF_TOPIC
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire import commands
from magnetar.common.wire.messages import MessageFramer, run_entry_metadata
from magnetar.ledger.ledger_store import RUN_CHUNK, Run


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options of a consumer from its Subscribe command."""

    consumer_id: int
    name: str
    priority_level: int
    properties: dict[str, str]
    epoch: int | None
    """The consumer epoch that a client sent; messages carry it back so that it can drop older ones."""
    sticky: bool = False
    """True when the client chooses its slots itself (Key_Shared, STICKY)."""
    hash_ranges: tuple[tuple[int, int], ...] = ()
    """Slots chosen by the client, both ends of a range inclusive; unchecked. Exclusive and Key_Shared."""
    allow_out_of_order: bool = False
    """True when the consumer gets its keys at once, without waiting for acknowledgements of their previous
    owner.
    """
    client_version: str = ""
    """The version that its client reports, for statistics."""
    is_auto_consume: bool = False
    """Whether its schema is AUTO_CONSUME: it takes the schema of each message."""
    read_compacted: bool = False
    """True when it reads the compacted view of the topic up to the horizon; Exclusive and Failover."""


class Consumer:
    """Permits, unacknowledged messages and the way to the client. Implements dispatch.candidate.Candidate."""

    __slots__ = (
        "_blocked_on_unacked",
        "_clock",
        "_framer",
        "acked_at_ms",
        "allow_out_of_order",
        "client_version",
        "connected_since_ms",
        "consumer_id",
        "entries_out",
        "epoch",
        "flow_at_ms",
        "hash_ranges",
        "is_auto_consume",
        "name",
        "on_detached",
        "peer",
        "pending",
        "permits",
        "priority_level",
        "properties",
        "read_compacted",
        "sends_entry_metadata",
        "sent_at_ms",
        "stats",
        "sticky",
        "told_of_end",
        "unacked_max",
    )

    def __init__(
        self,
        options: ConsumerOptions,
        peer: Peer,
        *,
        partition: int,
        unacked_max: int,
        clock: Clock,
        sends_entry_metadata: bool,
    ) -> None:
        self.consumer_id = options.consumer_id
        self.name = options.name
        self.priority_level = options.priority_level
        self.properties = options.properties
        self.epoch = options.epoch
        self.peer = peer
        self.permits = 0
        self.pending = PendingAcks()
        self.stats = SubscriptionStats()
        self.client_version = options.client_version
        self.is_auto_consume = options.is_auto_consume
        self._clock = clock
        self.connected_since_ms = clock.wall_ms()
        self.sent_at_ms = self.acked_at_ms = self.flow_at_ms = 0
        """Time when it was last sent messages, acknowledged some, gave permits: ms since 1970 UTC; 0:
        never.
        """
        self.entries_out = 0
        self.sends_entry_metadata = sends_entry_metadata
        self.on_detached: Callable[[EndCode], None] | None = None
        self.told_of_end = False
        """True once it was notified that the topic is terminated and everything acknowledged."""
        self.sticky = options.sticky
        self.hash_ranges = options.hash_ranges
        self.allow_out_of_order = options.allow_out_of_order
        self.read_compacted = options.read_compacted
        self.unacked_max = unacked_max
        """Maximum unacknowledged messages on Shared and Key_Shared; 0: no limit."""
        self._framer = MessageFramer(options.consumer_id, partition)
        self._blocked_on_unacked = False

    @property
    def blocked_on_unacked(self) -> bool:
        """True from the limit on unacknowledged messages on, until they fall to half of it."""
        if self._blocked_on_unacked and self.pending.messages <= self.unacked_max // 2:
            self._blocked_on_unacked = False
        return self._blocked_on_unacked

    def note_unacked(self) -> None:
        """Blocks it when it holds too many unacknowledged entries, on Shared and Key_Shared."""
        if self.pending.messages >= self.unacked_max > 0:
            self._blocked_on_unacked = True

    def limit_unacked(self, unacked_max: int) -> None:
        """Changes the limit on unacknowledged messages."""
        self.unacked_max = unacked_max
        self._blocked_on_unacked = False
        self.note_unacked()

    def redelivers(self, messages: int) -> None:
        """Removes messages that will be redelivered from its unacknowledged count, and unblocks it in any
        case.
        """
        self.stats.messages_redelivered += messages
        self._blocked_on_unacked = False

    @property
    def capacity(self) -> int:
        """Number of messages that it can receive now."""
        if self.permits <= 0 or not self.peer.writable or self.blocked_on_unacked:
            return 0
        if self.unacked_max <= 0:
            return self.permits
        # A consumer that requested a redelivery is unblocked even if a large batch took it beyond its limit.
        return min(self.permits, max(1, self.unacked_max - self.pending.messages))

    @property
    def held_back_by(self) -> Reason | None:
        # All that `capacity` checks, in its order. What took the last permit, or the last message that was
        # allowed, was sent at `sent_at_ms`; nothing was since.
        if self.permits <= 0:
            since_ms = self.sent_at_ms or self.connected_since_ms
            return reason(
                Code.NO_PERMITS,
                f"consumer {self.name} has given no permits",
                since_ms=since_ms,
                consumer=self.name,
                address=self.peer.address,
                permits=self.permits,
            )
        if not self.peer.writable:
            unread_s = self.peer.unwritable_s
            return reason(
                Code.SOCKET_FULL,
                f"the socket of consumer {self.name} is full",
                since_ms=self._clock.wall_ms() - int(unread_s * 1000) if unread_s else 0,
                consumer=self.name,
                address=self.peer.address,
            )
        if self.blocked_on_unacked:
            unacked, limit = self.pending.messages, self.unacked_max
            return reason(
                Code.UNACKED_LIMIT,
                f"consumer {self.name} has too many unacknowledged messages: {unacked}, and more go out at "
                f"{limit // 2} (maxUnackedMessagesPerConsumer is {limit})",
                since_ms=self.sent_at_ms,
                scope="consumer",
                consumer=self.name,
                address=self.peer.address,
                unacked=unacked,
                limit=limit,
            )
        return None

    def noted_ack(self) -> None:
        """Records the time of an acknowledgement; called once for each command or run of commands."""
        self.acked_at_ms = self._clock.wall_ms()

    def noted_flow(self) -> None:
        """Records the time at which it gave permits."""
        self.flow_at_ms = self._clock.wall_ms()

    def _sent(self, entries: int, messages: int, byte_length: int) -> None:
        self.permits -= messages
        self.entries_out += entries
        self.sent_at_ms = self._clock.wall_ms()
        stats = self.stats
        stats.messages_out += messages
        stats.bytes_out += byte_length

    def tell_active(self, active: bool) -> None:
        """Notifies a Failover client whether it is the active consumer, if its protocol version supports
        that.
        """
        if self.peer.protocol_version >= ACTIVE_CONSUMER_CHANGE and self.peer.connected:
            self.peer.write(commands.active_consumer_change(self.consumer_id, active))

    def tell_of_end(self) -> None:
        """Notifies a client, if its protocol version supports that, that the topic is terminated and
        everything acknowledged.
        """
        self.told_of_end = True
        if self.peer.protocol_version >= END_OF_TOPIC:
            self.peer.write(commands.reached_end_of_topic(self.consumer_id))

    def detach(self, code: EndCode) -> None:
        """Removes it from its connection: the broker closed it, not the client, because of `code`."""
        if self.on_detached is not None:
            self.on_detached(code)

    def deliver(
        self,
        run: Run,
        messages: int,
        *,
        redelivery_count: int = 0,
        ack_set: Sequence[int] | None = None,
    ) -> None:
        """Sends every entry of the run; `messages` is the number of permits it uses."""
        out: list[bytes] = []
        self._framer.frames(
            out,
            run.ledger_id,
            run.first_entry_id,
            run.entries,
            redelivery_count=redelivery_count,
            ack_set=ack_set,
            consumer_epoch=self.epoch,
            entry_metadata=self._entry_metadata(run) if self.sends_entry_metadata else None,
        )
        self.peer.write_parts(out)
        self._sent(len(run.entries), messages, run.byte_length)
        if run.flags & RUN_CHUNK:
            self.stats.chunks_out += len(run.entries)

    def deliver_runs(self, runs: Sequence[Run], messages: int, byte_length: int) -> None:
        """Sends new, complete entries; `messages` and `byte_length` are the totals of all runs."""
        out: list[bytes] = []
        frames = self._framer.frames
        entries = 0
        for run in runs:
            entries += len(run.entries)
            frames(
                out,
                run.ledger_id,
                run.first_entry_id,
                run.entries,
                consumer_epoch=self.epoch,
                entry_metadata=self._entry_metadata(run) if self.sends_entry_metadata else None,
            )
        self.peer.write_parts(out)
        self._sent(entries, messages, byte_length)

    def deliver_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        messages: int,
        byte_length: int,
        entry_metadata: Sequence[bytes] | None,
    ) -> None:
        """Sends new, complete entries of one ledger, in ascending order."""
        out: list[bytes] = []
        self._framer.frames_of(
            out, ledger_id, entry_ids, entries, consumer_epoch=self.epoch, entry_metadata=entry_metadata
        )
        self.peer.write_parts(out)
        self._sent(len(entry_ids), messages, byte_length)

    @staticmethod
    def _entry_metadata(run: Run) -> list[bytes]:
        return run_entry_metadata(run.publish_time_ms, run.first_index, len(run.entries), run.message_counts)


def fitting(entries: int, message_counts: Sequence[int] | None, messages_max: int) -> int:
    """Returns how many of the first entries fit into `messages_max`; at least one, because a batch is never
    split.
    """
    if message_counts is None:
        return min(entries, messages_max)
    messages = 0
    for index, count in enumerate(message_counts):
        messages += count
        if messages >= messages_max:
            return index + 1
    return entries

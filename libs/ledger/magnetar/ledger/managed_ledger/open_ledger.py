"""A topic's open ledger: its creation, and the metadata written when it is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from magnetar.common.errors import StorageError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.store import ABSENT, Op, Put
from magnetar.common.metadata.values import TopicLedger, encode
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, LedgerWriter
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey, ref_value


class OpenLedger:
    """An open ledger in the head: `appended` and `confirmed` are its last such entry ids."""

    __slots__ = (
        "appended",
        "byte_length",
        "check_bytes",
        "check_entries",
        "confirmed",
        "error",
        "last_append_ms",
        "span",
        "writer",
    )

    def __init__(self, writer: LedgerWriter, opened_ms: int) -> None:
        self.writer = writer
        self.span = LedgerSpan(writer.ref, opened_ms=opened_ms)
        self.appended = self.confirmed = -1
        self.byte_length = 0
        self.error: StorageError | None = None
        self.check_entries = self.check_bytes = 0
        self.last_append_ms = opened_ms

    @property
    def settled(self) -> bool:
        """Whether everything appended is confirmed."""
        return self.confirmed >= self.appended


async def open_next(
    ctx: ManagedLedgerContext,
    head: TopicHeadKey,
    topic: str,
    on_confirmed: Callable[[OpenLedger, int], None],
    on_failed: Callable[[OpenLedger, StorageError, int], None],
) -> tuple[OpenLedger, list[tuple[StorageError, int]]]:
    """Creates a ledger and adds it to the head; returns it with its failures so far. Later failures and
    confirmations are reported with the ledger.

    Raises OwnershipLost, or a retriable error: then the head is unchanged.
    """
    await head.sync()
    opened: OpenLedger | None = None
    early: list[tuple[StorageError, int]] = []
    put: Put | None = None

    def with_ops(ref: LedgerRef) -> Sequence[Op]:
        nonlocal put
        value = head.decode()
        value.open_ledgers.append(ref_value(ref))
        put = head.put(value)
        return [put]

    def confirmed(last_confirmed: int) -> None:
        if opened is not None:
            on_confirmed(opened, last_confirmed)

    def failed(error: StorageError, last_confirmed: int) -> None:
        if opened is None:
            early.append((error, last_confirmed))
        else:
            on_failed(opened, error, last_confirmed)

    try:
        writer = await ctx.ledgers.create(
            LedgerListener(on_confirmed=confirmed, on_failed=failed),
            ensemble_size=ctx.config.ensemble_size,
            write_quorum=ctx.config.write_quorum,
            ack_quorum=ctx.config.ack_quorum,
            properties={"topic": topic, "kind": "entries"},
            with_ops=with_ops,
        )
    except VersionMismatch as error:
        raise head.explain(error) from error
    except UnknownOutcome as error:
        raise await head.unknown() or error from error
    assert put is not None, "the ledger was made together with the head"
    head.written(put)
    opened = OpenLedger(writer, ctx.clock.wall_ms())
    return opened, early


def closing_ops(
    ctx: ManagedLedgerContext,
    head: TopicHeadKey,
    creation_id: int,
    span: LedgerSpan,
    closed: ClosedLedger,
    given_up: Iterable[LedgerRef] = (),
) -> tuple[Put, list[Op]]:
    """Returns (the head's write, all writes) of the transaction that closes a ledger.

    The head drops the ledger. It gets a topic-ledger key with the data in `span`, or a deletion intent if it
    is empty; ledgers given up with it get intents too.
    """
    value = head.decode()
    span.closed_ms = ctx.clock.wall_ms()
    doomed = list(given_up)
    ops: list[Op] = []
    if closed.last_entry_id < 0:
        doomed.append(closed.ref)
    else:
        value.first_ledger_id = value.first_ledger_id or closed.ref.id
        topic_ledger = TopicLedger(
            ref=ref_value(closed.ref),
            last_entry_id=closed.last_entry_id,
            entries=closed.last_entry_id + 1,
            messages=max(span.messages, 0),
            byte_length=span.byte_length or closed.byte_length,
            first_index=span.first_index,
            opened_ms=span.opened_ms,
            closed_ms=span.closed_ms,
            max_publish_time_ms=span.max_publish_time_ms,
        )
        key = ctx.keys.topic_ledger(creation_id, closed.ref.id)
        ops.append(Put(key, encode(topic_ledger), ABSENT))
    gone = {closed.ref.id, *(ref.id for ref in doomed)}
    kept = [ref for ref in value.open_ledgers if ref.id not in gone]
    del value.open_ledgers[:]
    value.open_ledgers.extend(kept)
    ops += [delete_ledger_intent(ctx, ref) for ref in doomed]
    put = head.put(value)
    return put, [put, *ops]

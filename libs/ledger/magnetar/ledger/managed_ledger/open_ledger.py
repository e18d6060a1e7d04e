"""A ledger of a topic that is not closed yet, and what is written to metadata when it is."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.common.errors import StorageError
from magnetar.common.metadata.store import ABSENT, Op, Put
from magnetar.common.metadata.values import TopicLedger, encode
from magnetar.ledger.ledger_store import ClosedLedger, LedgerRef, LedgerWriter
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey, ref_value


class OpenLedger:
    """A ledger of the head that is not closed: `appended` and `confirmed` are its last such entry ids."""

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
        """True when everything appended is confirmed."""
        return self.confirmed >= self.appended


def closing_ops(
    ctx: ManagedLedgerContext,
    head: TopicHeadKey,
    creation_id: int,
    span: LedgerSpan,
    closed: ClosedLedger,
    given_up: Iterable[LedgerRef] = (),
) -> tuple[Put, list[Op]]:
    """(the head's write, all writes) that go with the closing of a ledger, in one transaction.

    The head names it no more. It gets a topic ledger key, with what `span` knows of it, or when it is empty
    an intent to delete it; so do the ledgers that are given up with it.
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

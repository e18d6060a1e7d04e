"""Answers to appends: codes for errors, results by entry, and counted refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.bookie.ledger_storage import WrongKey
from magnetar.common.errors import Backpressure, LedgerFenced, LogFull
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    FENCED,
    LOG_FAILED,
    READ_ONLY,
    WRONG_KEY,
    AppendResult,
    Code,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import RecordHeader
from prometheus_client import Counter

Answer = Callable[[AppendResult], None]
"""Called with the result for consecutive entries of one ledger, possibly before `append` returns."""

REFUSED_APPENDS = Counter(
    "magnetar_bookie_refused_appends",
    "Appends that were answered with another code than OK.",
    ["code"],
    registry=REGISTRY,
)

_ID_BITS: Final = (1 << 64) - 1


def refuse(header: RecordHeader, answer: Answer, code: Code.ValueType, reason: str) -> None:
    """Answers that no entry of a record is accepted."""
    REFUSED_APPENDS.labels(code=Code.Name(code)).inc()
    answer(result_of(header, code, reason))


def code_of(error: Exception) -> tuple[Code.ValueType, str]:
    """Returns (code, reason) for an error that refused an append."""
    if isinstance(error, LogFull):
        return READ_ONLY, str(error)
    if isinstance(error, Backpressure):
        return BACKPRESSURE, str(error)
    if isinstance(error, LedgerFenced):
        return FENCED, str(error)
    if isinstance(error, WrongKey):
        return WRONG_KEY, str(error)
    return LOG_FAILED, str(error)


def result_of(header: RecordHeader, code: Code.ValueType, reason: str = "") -> AppendResult:
    """Returns the result of a whole record."""
    ref = LedgerRef(header.ledger_id, header.ledger_key)
    return result_for(ref, header.first_entry_id, header.entry_count, code, reason)


def result_for(ref: LedgerRef, first: int, count: int, code: Code.ValueType, reason: str) -> AppendResult:
    """Returns the result of consecutive entries."""
    return AppendResult(
        ledger=WireRef(id=ref.id & _ID_BITS, key=ref.key),
        first_entry_id=first,
        entry_count=count,
        code=code,
        reason=reason,
    )

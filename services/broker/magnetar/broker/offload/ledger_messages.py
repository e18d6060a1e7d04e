"""Closed and open ledgers as messages of the offload protocol, with the bookies that store their entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, TopicLedger, decode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import Bookies, Ledger, OffloadState, State
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.offload_state import has_left_bookies

BookieAddress = Callable[[str], str | None]
"""Gives host:port for a bookie id; None for an unknown bookie."""

FETCHED_AT_ONCE: Final = 32


def ledger_message(topic: TopicName, creation_id: int, ledger: TopicLedger) -> Ledger:
    """Builds the message of a closed ledger, without its bookies."""
    message = Ledger(
        topic=topic.full,
        creation_id=creation_id,
        ledger_id=ledger.ref.id,
        ledger_key=ledger.ref.key,
        last_entry_id=ledger.last_entry_id,
        entries=ledger.entries,
        byte_length=ledger.byte_length,
        first_index=ledger.first_index,
        opened_ms=ledger.opened_ms,
        closed_ms=max(ledger.closed_ms, 1),  # 0 means open
        max_publish_time_ms=ledger.max_publish_time_ms,
    )
    if ledger.offload.state:
        message.offload.CopyFrom(_offload_message(ledger))
    return message


def open_ledger_message(topic: TopicName, creation_id: int, span: LedgerSpan, last_entry_id: int) -> Ledger:
    """Builds the message of the open ledger, up to its last readable entry."""
    return Ledger(
        topic=topic.full,
        creation_id=creation_id,
        ledger_id=span.ref.id,
        ledger_key=span.ref.key,
        last_entry_id=last_entry_id,
        entries=last_entry_id + 1,
        byte_length=span.byte_length,
        first_index=span.first_index,
        opened_ms=span.opened_ms,
        max_publish_time_ms=span.max_publish_time_ms,
    )


def _offload_message(ledger: TopicLedger) -> OffloadState:
    offload = ledger.offload
    return OffloadState(
        state=cast("State.ValueType", offload.state),  # the same numbers
        attempt=offload.attempt,
        location=offload.location,
        path=offload.path,
        wanted_ms=offload.wanted_ms,
        begun_ms=offload.begun_ms,
        completed_ms=offload.completed_ms,
        rows=offload.rows,
        raw_entries=offload.raw_entries,
        object_bytes=offload.object_bytes,
        manifest_sha256=offload.manifest_sha256,
        failures=offload.failures,
        error=offload.error,
        exact=offload.exact,
        left_bookies_ms=offload.left_bookies_ms,
        heard_ms=offload.heard_ms,
    )


class BookiesOf:
    """Bookies that store a ledger, from its metadata, with their current addresses."""

    def __init__(self, metadata: MetadataStore, keys: Keys, address: BookieAddress | None) -> None:
        """`address` is None without bookies."""
        self._metadata = metadata
        self._keys = keys
        self._address = address

    async def fill(self, pairs: Sequence[tuple[Ledger, TopicLedger]]) -> None:
        """Adds the bookies of closed ledgers that bookies still store. Raises MetadataError."""
        if self._address is None:
            return
        on_bookies = [message for message, ledger in pairs if not has_left_bookies(ledger)]
        for first in range(0, len(on_bookies), FETCHED_AT_ONCE):
            some = on_bookies[first : first + FETCHED_AT_ONCE]
            for message, found in zip(some, await asyncio.gather(*map(self._of, some)), strict=True):
                if found is not None:
                    message.bookies.CopyFrom(found)

    async def _of(self, message: Ledger) -> Bookies | None:
        found = await self._metadata.get(self._keys.ledger(message.ledger_id))
        if found is None:
            return None
        metadata = decode(LedgerMetadata, found.value)
        if metadata.ref.key != message.ledger_key:
            return None
        return Bookies(ledger_metadata=found.value, addresses=self._addresses(_bookies_in(metadata)))

    def _addresses(self, bookie_ids: Iterable[str]) -> dict[str, str]:
        assert self._address is not None, "called with bookies only"
        known = {bookie_id: self._address(bookie_id) for bookie_id in bookie_ids}
        return {bookie_id: address for bookie_id, address in known.items() if address is not None}


def _bookies_in(metadata: LedgerMetadata) -> set[str]:
    return {bookie_id for fragment in metadata.fragments for bookie_id in fragment.bookie_ids}

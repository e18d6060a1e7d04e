"""Descriptions of topics: closed ledgers from metadata, the open ledger from the topic's owner.

The owner also tells what transactions mean for readers: how far ledgers can be read, and the entries that are
aborted, which callers leave out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.broker.offload.held_ledgers import is_held, why_held
from magnetar.broker.offload.ledger_messages import BookiesOf, ledger_message, open_ledger_message
from magnetar.broker.offload.topic_names import TopicNames
from magnetar.broker.offload.topic_owners import TopicOwners
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import BeingChanged, UnsupportedFormat
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import DescribeRequest, DescribeResponse, Ledger
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.wire.pulsar_pb2 import Schema
from magnetar.ledger.cold.aborted_entries import encode_aborted
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers, TopicLedgers
from magnetar.ledger.managed_ledger.offload_state import has_left_bookies

LEDGERS_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of ledgers in one response."""

TURNS_MAX: Final = 4
"""Maximum pages built at the same time: a long one takes a millisecond of each turn of the event loop."""


@dataclass(frozen=True, slots=True)
class _Readable:
    """Ledgers of one creation of a topic as its owner has them: closed ones, and those that can be read."""

    ledger: ManagedLedger
    spans: list[tuple[LedgerSpan, int, bool]]
    """Each span with its last readable entry (-1: none) and whether it was closed."""


class _Told(NamedTuple):
    """A described ledger: a closed one from metadata, the open one from its owner."""

    ledger_id: int
    ledger: TopicLedger | None
    span: LedgerSpan | None
    last_entry_id: int


class TopicDescriptions:
    """Implements the Describe call, for which a topic owned by this broker is loaded."""

    def __init__(
        self,
        ledgers: OffloadLedgers,
        topics: TopicRegistry,
        schemas: SchemaStore,
        bookies: BookiesOf,
        owners: TopicOwners,
        names: TopicNames,
    ) -> None:
        self._ledgers = ledgers
        self._topics = topics
        self._schemas = schemas
        self._bookies = bookies
        self._owners = owners
        self._names = names
        self._turns = asyncio.Semaphore(TURNS_MAX)

    async def describe(self, request: DescribeRequest) -> DescribeResponse:
        """Returns one page of ledgers. Raises TopicNotFound, ServiceNotReady, BeingChanged,
        UnsupportedFormat, StorageError, MetadataError.
        """
        name = await self._names.persistent(request.topic)
        response = DescribeResponse(owner=await self._owners.elsewhere(name))
        # Read the open ledgers before the list: a ledger closed in between is in both, and none is missing.
        readable = None if response.owner else await self._readable(name)
        async with self._turns:
            found = await self._ledgers.of_topic(name)
            if found.unreadable:
                raise UnsupportedFormat(
                    f"topic {name} has {found.unreadable} ledgers whose metadata this release cannot "
                    "read; their entries would be missing: ask a broker of the release that wrote them"
                )
            response.creation_id = found.creation_id
            told = _closed(found) if readable is None else _joined(name, found, readable)
            following = [
                each
                for each in told
                if each.ledger_id > request.after_ledger_id
                and (not request.ledger_id or each.ledger_id == request.ledger_id)
            ]
            await self._fill_page(response, name, following, None if readable is None else readable.ledger)
        await self._fill_schema(response, name)
        return response

    async def _readable(self, name: TopicName) -> _Readable:
        """Returns the ledgers of a topic of this broker with the last readable entry of each."""
        topic = await self._topics.get(name, create=False, claim=True)
        assert isinstance(topic, PersistentTopic), "persistent by its name"
        limit = topic.ledger.read_limit()
        found = []
        for span in topic.ledger.spans.spans:
            last_entry_id = -1
            if span.ref.id <= limit.ledger_id:
                last_entry_id = min(Position(span.ref.id, span.entries - 1), limit).entry_id
            if last_entry_id >= 0 or (span.closed and is_held(topic.ledger, span)):
                found.append((span, last_entry_id, span.closed))
        return _Readable(topic.ledger, found)

    async def _fill_page(
        self, response: DescribeResponse, name: TopicName, following: list[_Told], owned: ManagedLedger | None
    ) -> None:
        """`owned` is the managed ledger if the topic is this broker's."""
        page: list[Ledger] = []
        closed: list[tuple[Ledger, TopicLedger]] = []
        async for ledger_id, ledger, span, last_entry_id in iterate_cooperatively(following[:LEDGERS_MAX]):
            if ledger is not None:
                page.append(ledger_message(name, response.creation_id, ledger))
                if last_entry_id < ledger.last_entry_id:
                    assert owned is not None, "only the owner tells less than all of a closed ledger"
                    page[-1].last_entry_id = last_entry_id
                    page[-1].held = why_held(owned)
                closed.append((page[-1], ledger))
            else:
                assert span is not None, f"ledger {ledger_id} is closed or open"
                page.append(open_ledger_message(name, response.creation_id, span, last_entry_id))
        await self._bookies.fill(closed)
        left = {ledger.ref.id for _, ledger in closed if has_left_bookies(ledger)}
        byte_length = 0
        for message in page:
            if owned is not None and message.ledger_id not in left:
                _tell_transactions(message, owned)
            byte_length += message.ByteSize()
            if response.ledgers and byte_length > PAGE_BYTES_MAX:
                break
            response.ledgers.append(message)
        response.more = len(response.ledgers) < len(following)

    async def _fill_schema(self, response: DescribeResponse, name: TopicName) -> None:
        found = await self._schemas.get(name)
        if found is not None:
            schema, _ = found
            response.schema_type = Schema.Type.Name(schema.type)
            response.schema = schema.schema_data


def _tell_transactions(message: Ledger, owned: ManagedLedger) -> None:
    message.transactions_told = True
    transactions = owned.transactions
    aborted = None if transactions is None else transactions.aborted.get(message.ledger_id)
    if aborted is not None:
        message.aborted = encode_aborted(aborted)


def _closed(found: TopicLedgers) -> list[_Told]:
    return [
        _Told(each.ref.id, each, None, each.last_entry_id)
        for each in found.ledgers
        if each.last_entry_id >= 0
    ]


def _joined(name: TopicName, found: TopicLedgers, readable: _Readable) -> list[_Told]:
    """Joins the owner's ledgers with metadata, which describes the closed ones. Raises BeingChanged.

    What was appended since the owner was asked is told only if it cannot be in a transaction.
    """
    if readable.ledger.creation_id != found.creation_id:
        raise BeingChanged(f"topic {name} was recreated while it was described; retry")
    closed = {each.ref.id: each for each in found.ledgers}
    plain = readable.ledger.transactions is None
    told = []
    for span, last_entry_id, was_closed in readable.spans:
        ledger = closed.get(span.ref.id)
        if ledger is not None:
            limited = was_closed or not plain
            told.append(_Told(span.ref.id, ledger, span, last_entry_id if limited else ledger.last_entry_id))
        elif not was_closed:  # otherwise it was trimmed meanwhile
            told.append(_Told(span.ref.id, None, span, last_entry_id))
    return told

"""Where a topic's entries are: its closed ledgers as metadata has them, the open one as its owner has it."""

from __future__ import annotations

from typing import Final

from magnetar.broker.offload.ledger_messages import BookiesOf, ledger_message, open_ledger_message
from magnetar.broker.offload.owners import Owners
from magnetar.broker.offload.topic_names import TopicNames
from magnetar.broker.schemas import SchemaStore
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic_registry import TopicRegistry
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import DescribeRequest, DescribeResponse, Ledger
from magnetar.common.wire.pulsar_pb2 import Schema
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

LEDGERS_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 4 << 20
"""Of ledgers in one answer."""


class Describing:
    """Answers Describe. A topic of this broker's is loaded for it."""

    def __init__(
        self,
        ledgers: OffloadLedgers,
        topics: TopicRegistry,
        schemas: SchemaStore,
        bookies: BookiesOf,
        owners: Owners,
        names: TopicNames,
    ) -> None:
        self._ledgers = ledgers
        self._topics = topics
        self._schemas = schemas
        self._bookies = bookies
        self._owners = owners
        self._names = names

    async def describe(self, request: DescribeRequest) -> DescribeResponse:
        """One page of ledgers. Raises TopicNotFound, ServiceNotReady, StorageError, MetadataError."""
        name = await self._names.persistent(request.topic)
        response = DescribeResponse(owner=await self._owners.elsewhere(name))
        spans: list[tuple[LedgerSpan, int]] = []
        if not response.owner:
            # Before the list is read: a ledger that is closed in between is in both, and none is in neither.
            spans = await self._readable(name)
        found = await self._ledgers.of_topic(name)
        response.creation_id = found.creation_id
        closed = {ledger.ref.id: ledger for ledger in found.ledgers if ledger.last_entry_id >= 0}
        pairs: list[tuple[Ledger, TopicLedger | None]] = []
        if response.owner:
            pairs = [(ledger_message(name, found.creation_id, each), each) for each in closed.values()]
        for span, last_entry_id in spans:
            ledger = closed.get(span.ref.id)
            if ledger is None:
                message = open_ledger_message(name, found.creation_id, span, last_entry_id)
            else:
                message = ledger_message(name, found.creation_id, ledger)
            pairs.append((message, ledger))
        await self._fill_page(response, pairs, request.after_ledger_id)
        await self._fill_schema(response, name)
        return response

    async def _readable(self, name: TopicName) -> list[tuple[LedgerSpan, int]]:
        """The ledgers of a topic of ours with the last entry of each that may be read now."""
        topic = await self._topics.get(name, create=False, claim=True)
        assert isinstance(topic, PersistentTopic), "persistent by its name"
        limit = topic.ledger.read_limit()
        found = []
        for span in topic.ledger.spans.spans:
            last_entry_id = min(Position(span.ref.id, span.entries - 1), limit).entry_id
            if span.ref.id <= limit.ledger_id and last_entry_id >= 0:
                found.append((span, last_entry_id))
        return found

    async def _fill_page(
        self, response: DescribeResponse, pairs: list[tuple[Ledger, TopicLedger | None]], after: int
    ) -> None:
        following = [pair for pair in pairs if pair[0].ledger_id > after]
        page = following[:LEDGERS_MAX]
        await self._bookies.fill([(message, ledger) for message, ledger in page if ledger is not None])
        byte_length = 0
        for message, _ in page:
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

"""The calls of offload jobs, answered by one broker.

Responses come from metadata, so any broker of a cluster can give them; only the topic's owner can tell the
end of an open ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from magnetar.broker.offload.deletion_intents import object_deletions, objects_deleted
from magnetar.broker.offload.entry_reads import EntryReads
from magnetar.broker.offload.ledger_messages import BookieAddress, BookiesOf
from magnetar.broker.offload.ledger_steps import LedgerSteps
from magnetar.broker.offload.live_attempts import attempts_at
from magnetar.broker.offload.topic_description import TopicDescriptions
from magnetar.broker.offload.topic_names import TopicNames
from magnetar.broker.offload.topic_owners import TopicOwners
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.offload.offload_pb2 import (
    AttemptsRequest,
    AttemptsResponse,
    BeginRequest,
    BeginResponse,
    CompleteRequest,
    CompleteResponse,
    DeletedRequest,
    DeletedResponse,
    DeletionsRequest,
    DeletionsResponse,
    DescribeRequest,
    DescribeResponse,
    FailRequest,
    FailResponse,
    ReadRequest,
    TopicsRequest,
    TopicsResponse,
    WantedRequest,
    WantedResponse,
    WantRequest,
    WantResponse,
)
from magnetar.ledger.managed_ledger import offload_state
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

PASSES_MAX: Final = 2
"""Maximum concurrent calls that read the ledgers of all topics; further ones wait."""


class JobCalls:
    """Implements `service.OffloadCalls` over the topics and the metadata of one broker."""

    def __init__(
        self,
        context: ManagedLedgerContext,
        topics: TopicRegistry,
        policies: PolicyStore,
        schemas: SchemaStore,
        owners: TopicOwners,
        *,
        bookie_address: BookieAddress | None = None,
        stale_after_ms: Callable[[], int] = lambda: offload_state.STALE_AFTER_MS,
    ) -> None:
        """`bookie_address` is None without bookies: jobs then read entries through this broker.

        `stale_after_ms` is called for each request, because the setting may change.
        """
        self._metadata = context.metadata
        self._keys = context.keys
        self._passes = asyncio.Semaphore(PASSES_MAX)
        self._ledgers = ledgers = OffloadLedgers(context.metadata, context.keys, context.clock)
        self._names = names = TopicNames(context.metadata, context.keys)
        bookies = BookiesOf(context.metadata, context.keys, bookie_address)
        self._steps = LedgerSteps(
            context, topics, policies, ledgers, names, bookies, self._passes, stale_after_ms
        )
        self._descriptions = TopicDescriptions(ledgers, topics, schemas, bookies, owners, names)
        self._reads = EntryReads(ledgers, context.ledgers, topics, owners)

    async def wanted(self, request: WantedRequest) -> WantedResponse:
        return await self._steps.wanted(request)

    async def want(self, request: WantRequest) -> WantResponse:
        return await self._steps.want(request)

    async def begin(self, request: BeginRequest) -> BeginResponse:
        return await self._steps.begin(request)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return await self._steps.complete(request)

    async def fail(self, request: FailRequest) -> FailResponse:
        return await self._steps.fail(request)

    async def topics(self, request: TopicsRequest) -> TopicsResponse:
        return TopicsResponse(topics=await self._names.find(request.names, request.pattern))

    async def describe(self, request: DescribeRequest) -> DescribeResponse:
        return await self._descriptions.describe(request)

    def read(self, request: ReadRequest) -> AsyncGenerator[bytes, None]:
        return self._reads.read(request)

    async def attempts(self, request: AttemptsRequest) -> AttemptsResponse:
        async with self._passes:
            return await attempts_at(self._ledgers, request)

    async def deletions(self, request: DeletionsRequest) -> DeletionsResponse:
        return await object_deletions(self._metadata, self._keys, request.location, request.after_intent_id)

    async def deleted(self, request: DeletedRequest) -> DeletedResponse:
        await objects_deleted(self._metadata, self._keys, request.intent_id)
        return DeletedResponse()

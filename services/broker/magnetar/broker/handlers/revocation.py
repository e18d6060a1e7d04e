"""Rights that were taken away while clients are connected: what lost its right is closed.

A change of grants, of a tenant's admins or of the super users concerns the producers, consumers and watchers
of topics that are open. They are looked at in slices; those that may not go on are closed, as with any
producer or consumer that the broker closes: clients open them again, and hear AuthorizationError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.client import Client, OpenConsumer, OpenProducer, OpenWatcher
from magnetar.broker.task_spawner import Spawn
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.audit import audit
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.authorization.rights_cache import Scope, concerns
from prometheus_client import Counter

log = get_logger(__name__)

RETRY_S: Final = 0.5
"""After grants that could not be read, before the next try."""

CLOSED: Final = Counter(
    "magnetar_authorization_revocations_total",
    "Producers, consumers and watchers of topics that were closed because their client lost the right.",
    ["kind"],
    registry=REGISTRY,
)


class Revocation:
    """Looks at what is open after each change of grants."""

    def __init__(self, authorizer: Authorizer, clients: Callable[[], Iterable[Client]], spawn: Spawn) -> None:
        """`clients` gives those that are connected now."""
        self._authorizer = authorizer
        self._clients = clients
        self._spawn = spawn
        self._changed: set[Scope] = set()
        self._running = False

    def rights_changed(self, scope: Scope) -> None:
        """Have what the change concerns looked at, soon; changes meanwhile are looked at after it."""
        self._changed.add(scope)
        if not self._running:
            self._running = True
            self._spawn(self._look(), "revoked rights")

    async def _look(self) -> None:
        try:
            while self._changed:
                scopes, self._changed = self._changed, set()
                try:
                    await self._look_at_all(scopes)
                except MagnetarError as error:
                    log.warning("grants cannot be read, trying again", error=str(error))
                    self._changed |= scopes
                    await asyncio.sleep(RETRY_S)
        finally:
            self._running = False

    async def _look_at_all(self, scopes: set[Scope]) -> None:
        async for client in iterate_cooperatively(list(self._clients())):
            try:
                await self._look_at_client(client, scopes)
            except MagnetarError:
                raise
            except Exception:
                # Nothing that is wrong with one client lets others keep what they lost.
                log.exception("a client's rights could not be looked at", peer=client.peer.address)

    async def _look_at_client(self, client: Client, scopes: set[Scope]) -> None:
        if client.producers:
            await self._look_at_producers(client, scopes)
        if client.consumers:
            await self._look_at_consumers(client, scopes)
        if client.watchers:
            await self._look_at_watchers(client, scopes)

    async def _look_at_producers(self, client: Client, scopes: set[Scope]) -> None:
        async for producer_id, opened in iterate_cooperatively(list(client.producers.items())):
            if not isinstance(opened, OpenProducer) or not concerns(scopes, opened.topic.name):
                continue
            if await self._authorizer.may_produce(client.principal, opened.topic.name):
                continue
            if client.producers.get(producer_id) is opened:
                opened.topic.producers.disconnect(opened.producer, EndCode.RIGHT_REVOKED)
                _closed(client, "producer", "produce", opened.topic.name.full)

    async def _look_at_consumers(self, client: Client, scopes: set[Scope]) -> None:
        async for consumer_id, opened in iterate_cooperatively(list(client.consumers.items())):
            if not isinstance(opened, OpenConsumer) or not concerns(scopes, opened.topic.name):
                continue
            name = opened.subscription.name
            if await self._authorizer.may_consume(client.principal, opened.topic.name, name):
                continue
            if client.consumers.get(consumer_id) is opened:
                opened.topic.disconnect_consumer(opened.subscription, opened.consumer, EndCode.RIGHT_REVOKED)
                _closed(client, "consumer", "consume", opened.topic.name.full, subscription=name)

    async def _look_at_watchers(self, client: Client, scopes: set[Scope]) -> None:
        """Watchers have no command that closes them: they hear of no more changes."""
        for watcher_id, opened in list(client.watchers.items()):
            if not isinstance(opened, OpenWatcher) or not _concern_namespace(scopes, opened.namespace):
                continue
            if await self._authorizer.may_list(client.principal, opened.namespace):
                continue
            if client.watchers.get(watcher_id) is opened:
                del client.watchers[watcher_id]
                client.services.topic_lists.unwatch(opened.namespace, opened.watcher)
                _closed(client, "watcher", "lookup", str(opened.namespace))


def _concern_namespace(scopes: set[Scope], namespace: NamespaceName) -> bool:
    return None in scopes or namespace in scopes or namespace.tenant in scopes


def _closed(
    client: Client, kind: str, action: str, resource: str, *, subscription: str | None = None
) -> None:
    CLOSED.labels(kind).inc()
    audit(
        f"{kind} closed",
        principal=client.principal,
        resource=resource,
        action=action,
        outcome="right revoked",
        subscription=subscription,
    )

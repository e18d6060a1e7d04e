"""Tenants and namespaces are made, changed and deleted: what operators do, and `Namespaces` then knows of.

Reads go to the store: an operator sees what he has just written.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.policies.policy_writer import TRIES_MAX
from magnetar.common.errors import (
    NamespaceExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotAllowed,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, Delete, MetadataStore, Op, Put
from magnetar.common.metadata.values import Namespace, Tenant, decode, encode
from magnetar.common.naming.namespace_name import SYSTEM_NAMESPACE, NamespaceName
from magnetar.common.naming.topic_name import DOMAINS
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)


class Tenancy:
    """The tenants and namespaces of one cluster, as their operators change them."""

    def __init__(self, metadata: MetadataStore, keys: Keys, clock: Clock) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock

    async def tenant(self, tenant: str) -> Tenant | None:
        """None when there is no such tenant."""
        found = await self._metadata.get(self._keys.tenant(tenant))
        return None if found is None else decode(Tenant, found.value)

    async def create_tenant(self, tenant: str, admin_roles: Sequence[str], clusters: Sequence[str]) -> None:
        """Raises NamespaceExists, MetadataError."""
        value = Tenant(admin_roles=admin_roles, allowed_clusters=clusters, created_ms=self._clock.wall_ms())
        await self._put_new(self._keys.tenant(tenant), encode(value), "Tenant already exist")
        log.info("tenant made", tenant=tenant)

    async def update_tenant(self, tenant: str, admin_roles: Sequence[str], clusters: Sequence[str]) -> None:
        """Raises NamespaceNotFound when there is no such tenant, VersionMismatch, MetadataError."""
        key = self._keys.tenant(tenant)
        found = await self._metadata.get(key)
        if found is None:
            raise NamespaceNotFound(f"Tenant {tenant} not found")
        value = decode(Tenant, found.value)
        value.admin_roles[:] = admin_roles
        value.allowed_clusters[:] = clusters
        await self._metadata.put(key, encode(value), found.version)

    async def delete_tenant(self, tenant: str) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty while it has namespaces, MetadataError."""
        key = self._keys.tenant(tenant)
        found = await self._metadata.get(key)
        if found is None:
            raise NamespaceNotFound("Tenant doesn't exist")
        # A namespace that is made from here on checks the tenant's version in its transaction.
        if (await self._metadata.children(self._keys.namespaces_prefix(tenant))).items:
            raise NamespaceNotEmpty("The tenant still has active namespaces")
        await self._metadata.delete(key, found.version)
        log.info("tenant deleted", tenant=tenant)

    async def create_namespace(self, name: NamespaceName, value: Namespace) -> None:
        """Raises NamespaceNotFound when there is no such tenant, NamespaceExists, MetadataError."""
        key = self._keys.namespace(name)
        value.created_ms = self._clock.wall_ms()
        for last in [*([False] * (TRIES_MAX - 1)), True]:
            tenant = await self._metadata.get(self._keys.tenant(name.tenant))
            if tenant is None:
                raise NamespaceNotFound("Tenant does not exist")
            # Rewriting the tenant as it is makes a deletion of it that looked before us fail.
            ops = [Put(tenant.key, tenant.value, tenant.version), Put(key, encode(value), ABSENT)]
            try:
                await self._metadata.commit(ops)
            except VersionMismatch as error:
                if error.key == key:
                    raise NamespaceExists("Namespace already exists") from error
                if last:
                    raise
            except UnknownOutcome:
                found = await self._metadata.get(key)
                if found is None or found.value != encode(value):
                    raise
                break
            else:
                break
        log.info("namespace made", namespace=str(name))

    async def delete_namespace(self, name: NamespaceName) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty while it has topics, NotAllowed, MetadataError.

        Topics that metadata knows nothing of are the caller's to look for, and that none is made meanwhile.
        """
        if name == SYSTEM_NAMESPACE:
            raise NotAllowed(f"{name} is the cluster's own and cannot be deleted")
        key = self._keys.namespace(name)
        found = await self._metadata.get(key)
        if found is None:
            raise NamespaceNotFound(f"Namespace {name} does not exist.")
        for domain in DOMAINS:
            for prefix in (
                self._keys.topic_heads_prefix(domain, name),
                self._keys.partitioned_topics_prefix(domain, name),
            ):
                if (await self._metadata.children(prefix)).items:
                    raise NamespaceNotEmpty("Cannot delete non empty namespace")
        leftovers = await self._leftovers(name)
        fitting = TXN_OPS_MAX - 1
        for first in range(fitting, len(leftovers), TXN_OPS_MAX):
            await self._metadata.commit(leftovers[first : first + TXN_OPS_MAX])
        await self._metadata.commit([Delete(key, found.version), *leftovers[:fitting]])
        log.info("namespace deleted", namespace=str(name))

    async def _leftovers(self, name: NamespaceName) -> list[Op]:
        """What is said of topics that are not there: nobody writes down when a non-persistent one goes.

        It goes with the namespace, or it would be said of the topics of the next one of its name.
        """
        prefixes = [
            prefix
            for domain in DOMAINS
            for prefix in (
                self._keys.topic_policies_prefix(domain, name),
                self._keys.namespace_schemas_prefix(domain, name),
            )
        ]
        listings = [await self._metadata.children(prefix) for prefix in prefixes]
        return [Delete(item.key) for listing in listings for item in listing.items]

    async def _put_new(self, key: str, value: bytes, reason: str) -> None:
        try:
            await self._metadata.put(key, value, ABSENT)
        except VersionMismatch as error:
            raise NamespaceExists(reason) from error
        except UnknownOutcome:
            found = await self._metadata.get(key)
            if found is None or found.value != value:
                raise

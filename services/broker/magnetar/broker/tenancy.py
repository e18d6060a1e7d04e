"""Operators' changes of tenants and namespaces; `Namespaces` reads the result.

Reads go to the store, so an operator sees the latest change.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.policies.policy_writer import TRIES_MAX
from magnetar.common.errors import (
    BeingDeleted,
    NamespaceExists,
    NamespaceNotFound,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys, delete_namespace_intent_id, delete_tenant_intent_id
from magnetar.common.metadata.store import ABSENT, Check, MetadataStore, Op, Put
from magnetar.common.metadata.values import Namespace, Tenant, decode, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)


class Tenancy:
    """Creates, reads and changes the tenants and namespaces of one cluster."""

    def __init__(self, metadata: MetadataStore, keys: Keys, clock: Clock) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock

    async def tenant(self, tenant: str) -> Tenant | None:
        """Returns the value of a tenant; None when it does not exist."""
        found = await self._metadata.get(self._keys.tenant(tenant))
        return None if found is None else decode(Tenant, found.value)

    async def create_tenant(self, tenant: str, admin_roles: Sequence[str], clusters: Sequence[str]) -> None:
        """Creates a tenant. Raises NamespaceExists, BeingDeleted while a tenant of that name is being
        deleted, MetadataError.
        """
        value = Tenant(admin_roles=admin_roles, allowed_clusters=clusters, created_ms=self._clock.wall_ms())
        key, data = self._keys.tenant(tenant), encode(value)
        intent = self._keys.intent(delete_tenant_intent_id(tenant))
        try:
            await self._metadata.commit([Put(key, data, ABSENT), Check(intent, ABSENT)])
        except VersionMismatch as error:
            if error.key == intent:
                raise BeingDeleted(
                    f"Tenant {tenant} is being deleted; retry when the deletion is done"
                ) from error
            raise NamespaceExists("Tenant already exist") from error
        except UnknownOutcome:
            found = await self._metadata.get(key)
            if found is None or found.value != data:
                raise
        log.info("tenant created", tenant=tenant)

    async def update_tenant(self, tenant: str, admin_roles: Sequence[str], clusters: Sequence[str]) -> None:
        """Changes a tenant. Raises NamespaceNotFound when it does not exist, VersionMismatch,
        MetadataError.
        """
        key = self._keys.tenant(tenant)
        found = await self._metadata.get(key)
        if found is None:
            raise NamespaceNotFound(f"Tenant {tenant} not found")
        value = decode(Tenant, found.value)
        value.admin_roles[:] = admin_roles
        value.allowed_clusters[:] = clusters
        await self._metadata.put(key, encode(value), found.version)

    async def create_namespace(self, name: NamespaceName, value: Namespace) -> None:
        """Creates a namespace. Raises NamespaceNotFound when its tenant does not exist, NamespaceExists,
        BeingDeleted while a namespace of that name is being deleted, MetadataError.
        """
        key = self._keys.namespace(name)
        intent = self._keys.intent(delete_namespace_intent_id(name))
        value.created_ms = self._clock.wall_ms()
        for last in [*([False] * (TRIES_MAX - 1)), True]:
            tenant = await self._metadata.get(self._keys.tenant(name.tenant))
            if tenant is None:
                raise NamespaceNotFound("Tenant does not exist")
            # Rewriting the tenant unchanged makes a concurrent deletion fail that has read the tenant before
            # us.
            ops: list[Op] = [
                Check(intent, ABSENT),
                Put(tenant.key, tenant.value, tenant.version),
                Put(key, encode(value), ABSENT),
            ]
            try:
                await self._metadata.commit(ops)
            except VersionMismatch as error:
                if error.key == intent:
                    reason = f"Namespace {name} is being deleted; retry when the deletion is done"
                    raise BeingDeleted(reason) from error
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
        log.info("namespace created", namespace=str(name))

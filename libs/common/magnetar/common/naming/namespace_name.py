"""Tenants and namespaces: `tenant/namespace`, the unit of policies and of bundles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from magnetar.common.errors import InvalidName

_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_ENTITY_CHARS_MAX: Final = 512


def check_entity(kind: str, name: str) -> str:
    """Return `name` if it may name a tenant, a namespace or a cluster; raises InvalidName otherwise.

    The alphabet is Pulsar's: letters, digits and `_ - = : .`; `kind` ('tenant', ...) goes into the message.
    """
    if not name:
        raise InvalidName(f"the {kind} name is empty")
    if len(name) > _ENTITY_CHARS_MAX:
        raise InvalidName(
            f"the {kind} name has {len(name)} characters, at most {_ENTITY_CHARS_MAX} are allowed"
        )
    if _ENTITY.fullmatch(name) is None:
        raise InvalidName(
            f"the {kind} name {name!r} has a character outside of letters, digits and '_', '-', '=', ':', '.'"
        )
    return name


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """A namespace within its tenant. Text form `tenant/namespace`."""

    tenant: str
    namespace: str

    @staticmethod
    def parse(text: str) -> NamespaceName:
        """Parse `tenant/namespace`; raises InvalidName saying what is wrong."""
        return _parse(text)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@lru_cache(maxsize=4096)
def _parse(text: str) -> NamespaceName:
    parts = text.split("/")
    if len(parts) == 3:
        raise InvalidName(
            f"{text!r} is an old namespace name with a cluster in it (tenant/cluster/namespace), which is "
            "not supported; use tenant/namespace"
        )
    if len(parts) != 2:
        raise InvalidName(f"{text!r} is not a namespace name; it has the form tenant/namespace")
    return NamespaceName(check_entity("tenant", parts[0]), check_entity("namespace", parts[1]))


DEFAULT_NAMESPACE: Final = NamespaceName("public", "default")
"""Namespace of short topic names; created at the first start of a standalone."""

SYSTEM_NAMESPACE: Final = NamespaceName("pulsar", "system")
"""Reserved for the cluster's own topics."""

"""The classes of operations of the admin API: who passes, and how a refusal looks.

The classes and their statuses are those of Apache Pulsar 4.0: 401 for an authenticated role is wrong by HTTP,
but clients and scripts know it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_TENANT_ADMIN: Final = "to be an admin of the tenant (adminRoles) or a super user"


class Operation(Enum):
    """A class of operations; every route of the admin API has one."""

    OPEN = ("open", "nothing", 200)
    """Needs no authentication at all: probes, metrics, the description of the API."""
    ANY = ("any", "any role", 401)
    SUPER_USER = ("S", "to be a super user (superUserRoles)", 401)
    TENANT_ADMIN = ("T", _TENANT_ADMIN, 401)
    NAMESPACE_ADMIN = ("N", _TENANT_ADMIN, 403)
    NAMESPACE_CONSUME = ("Nc", "consume granted on the namespace, or to administer the tenant", 403)
    NAMESPACE_USE = ("Ncp", "produce or consume granted on the namespace, or to administer the tenant", 403)
    POLICY = ("P", _TENANT_ADMIN, 403)
    TOPIC_CONSUME = ("C", "consume granted on the topic or its namespace, by a subscription open to it", 401)
    TOPIC_LOOKUP = ("L", "produce or consume granted on the topic or its namespace", 401)
    TOPIC_ADMIN = ("A", _TENANT_ADMIN, 401)
    TOPIC_PRODUCE = ("produce", "produce granted on the topic or its namespace", 401)

    def __init__(self, letter: str, needs: str, status: int) -> None:
        self.letter = letter
        """The short name of the class, in descriptions of the API."""
        self.needs = needs
        """The right that a refused caller lacks."""
        self.status = status
        """The HTTP status of a refusal."""

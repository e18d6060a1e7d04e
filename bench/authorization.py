"""Authorization decisions a second, on known grants: `python -m bench.authorization`.

Lookups, producers and subscriptions are decided from memory, without a turn of the event loop; this says what
one decision costs. The goal is below 1 µs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from magnetar.common.metadata.values import Policies
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.authorization.decisions import Decisions, Rights
from magnetar.common.security.authorization.grants import compile_grants
from magnetar.common.security.principal import Principal

DECISIONS: Final = 200_000
ROUNDS: Final = 5
ROLES: Final = 100
"""Roles with a grant on the namespace."""

TOPIC: Final = TopicName.parse("persistent://acme/demo/orders-partition-7")


def measured(rounds: int = ROUNDS) -> dict[str, float]:
    """Decisions a second by kind, the best of the rounds."""
    policies = Policies()
    for number in range(ROLES):
        policies.permissions[f"role-{number}"].names[:] = ["produce", "consume"]
    wild = Policies()
    for number in range(10):
        wild.permissions[f"team-{number}-*"].names[:] = ["produce"]
    rights = Rights(frozenset({"admin"}), compile_grants(policies, wildcards=False))
    wild_rights = Rights(frozenset({"admin"}), compile_grants(wild, wildcards=True))
    decisions = Decisions(AuthorizationConfig(enabled=True, super_user_roles=("root",)))
    known = {TOPIC.full: rights}
    role, root, admin, stranger = (Principal(each) for each in ("role-7", "root", "admin", "stranger"))
    proxied = Principal("role-7", "role-8")
    cases: dict[str, Callable[[], bool]] = {
        "granted on the namespace": lambda: decisions.may_produce(role, rights),
        "the same, with the lookup of its grants": lambda: decisions.may_produce(role, known[TOPIC.full]),
        "by a subscription": lambda: decisions.may_consume(role, rights, "audit"),
        "super user": lambda: decisions.may_produce(root, rights),
        "admin of the tenant": lambda: decisions.may_produce(admin, rights),
        "refused": lambda: decisions.may_produce(stranger, rights),
        "a proxy and its client": lambda: decisions.may_produce(proxied, rights),
        "refused by ten wildcards": lambda: decisions.may_produce(stranger, wild_rights),
    }
    return {name: DECISIONS / min(_seconds(decide) for _ in range(rounds)) for name, decide in cases.items()}


def main() -> None:
    """Print decisions a second, and the time of each."""
    for name, rate in measured().items():
        print(f"{name:<42} {rate:>12,.0f}/s {1e9 / rate:>7,.0f} ns")


def _seconds(decide: Callable[[], bool]) -> float:
    began = time.perf_counter()
    for _ in range(DECISIONS):
        decide()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

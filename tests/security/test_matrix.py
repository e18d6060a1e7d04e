"""Every route of the admin API, as each kind of caller, against what its class of operations says.

What a class lets pass is written down here a second time, on purpose. Calls that would be let through and
may change something are not made: a caller without the right is what they are tried with.
"""

from __future__ import annotations

import asyncio
import re
from typing import ClassVar

import aiohttp
import pytest
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.table import routes
from magnetar.common.security.authorization.operations import Operation

from tests.security.conftest import Secured, bearer

pytestmark = pytest.mark.full

CALLERS = ("", "unknown", "consumer", "producer", "stranger", "admin", "root")
"""Roles by their tokens; the first sends no credential and is the anonymous role."""

ADMINS = {"admin", "root"}
ALLOWED = {
    Operation.OPEN: set(CALLERS),
    Operation.ANY: set(CALLERS),
    Operation.SUPER_USER: {"root"},
    Operation.TENANT_ADMIN: ADMINS,
    Operation.NAMESPACE_ADMIN: ADMINS,
    Operation.NAMESPACE_CONSUME: ADMINS | {"consumer"},
    Operation.NAMESPACE_USE: ADMINS | {"consumer", "producer"},
    Operation.POLICY: ADMINS,
    Operation.TOPIC_CONSUME: ADMINS | {"consumer"},
    Operation.TOPIC_LOOKUP: ADMINS | {"consumer", "producer"},
    Operation.TOPIC_ADMIN: ADMINS,
    Operation.TOPIC_PRODUCE: ADMINS | {"producer"},
}
NAMES = {"tenant": "m", "namespace": "n", "domain": "persistent", "bundle": "0x00000000_0xffffffff"}
AT_ONCE = 32


class NoBroker:
    """A broker of which only the table is due."""

    class config:
        cluster_name = "standalone"

    topics: ClassVar[dict[str, object]] = {}


def path_of(route: Route) -> str:
    path = re.sub(r"\{(\w+)\}", lambda name: NAMES.get(name[1], "absent"), route.path)
    return path if "{tenant}" in route.path else f"{path}?tenant={NAMES['tenant']}"


def test_every_route_answers_each_caller_as_its_class_says(secured: Secured) -> None:
    table = routes(NoBroker())  # type: ignore[arg-type]
    wrong, calls = asyncio.run(_all(secured.http_url, table))
    print(f"{calls} calls")
    assert calls > 1_000
    assert not wrong, "\n".join(wrong)


async def _all(url: str, table: list[Route]) -> tuple[list[str], int]:
    wrong: list[str] = []
    slots = asyncio.Semaphore(AT_ONCE)
    calls = [
        (route, caller)
        for route in table
        for caller in (*CALLERS, "forged")
        if caller == "forged" or not route.names_in_body
        if caller not in ALLOWED[route.operation] or route.method == "GET"
    ]

    async def one(session: aiohttp.ClientSession, route: Route, caller: str) -> None:
        headers = bearer(caller) if caller else {}
        if caller == "forged":
            headers["Authorization"] += "x"
        async with (
            slots,
            session.request(
                route.method, f"{url}{path_of(route)}", headers=headers, allow_redirects=False
            ) as response,
        ):
            status = response.status
        refused = 401 if caller == "forged" else route.operation.status
        allowed = route.operation is Operation.OPEN or caller in ALLOWED[route.operation]
        if status in (401, 403) if allowed else status != refused:
            due = "no 401, 403" if allowed else refused
            wrong.append(
                f"{route.method} {route.path} {route.operation.letter} as {caller!r}: {status}, not {due}"
            )

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session:
        await asyncio.gather(*(one(session, *call) for call in calls))
    return wrong, len(calls)

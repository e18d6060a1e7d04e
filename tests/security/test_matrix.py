"""Every route of the admin API, as each kind of caller, against the contract's class of the route.

Classes and the roles that they admit are written down in `route_classes`, apart from the code's table. Calls
that are refused are made for all routes. Calls that are admitted and may change something are made on a
server of their own, where each route has a tenant of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import aiohttp
import pytest
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.table import routes

from tests.security.conftest import PROXY, WEAK_PROXY, Secured, bearer
from tests.security.route_classes import ADMITTED, REFUSED, class_of

pytestmark = pytest.mark.full

_ORIGINAL: Final = "X-Original-Principal"

ROLES: Final = ("anonymous", "unknown", "consumer", "producer", "stranger", "admin", "root")


@dataclass(frozen=True)
class Caller:
    """A kind of caller: its headers, and the role whose rights it has; None when it is refused with 401."""

    name: str
    headers: Mapping[str, str]
    role: str | None
    is_rare: bool = False
    """Whether it makes every tenth call only: requests are refused so before their route is looked at."""


def callers() -> list[Caller]:
    own = [Caller(role, {} if role == "anonymous" else bearer(role), role) for role in ROLES]
    proxied = [
        Caller(f"{PROXY} for {role}", {**bearer(PROXY), _ORIGINAL: role}, role)
        for role in ("unknown", "consumer", "producer", "stranger", "admin", "root")
    ]
    forged = {"Authorization": bearer("root")["Authorization"] + "x"}
    return [
        *own,
        *proxied,
        Caller("a proxy without rights for root", {**bearer(WEAK_PROXY), _ORIGINAL: "root"}, "unknown"),
        Caller("a proxy without a client", bearer(PROXY), None),
        Caller("a proxy for a proxy", {**bearer(PROXY), _ORIGINAL: WEAK_PROXY}, None, is_rare=True),
        Caller("consumer for root", {**bearer("consumer"), _ORIGINAL: "root"}, None, is_rare=True),
        Caller("anonymous for root", {_ORIGINAL: "root"}, None, is_rare=True),
        Caller("forged", forged, None),
        Caller(
            "unknown method", {**bearer("root"), "X-Pulsar-Auth-Method-Name": "kerberos"}, None, is_rare=True
        ),
    ]


CALLERS: Final = callers()
AT_ONCE: Final = 32


class NoBroker:
    """A broker of which only the table is needed."""

    class config:
        cluster_name = "standalone"

    topics: ClassVar[dict[str, object]] = {}


def table() -> list[Route]:
    return routes(NoBroker())  # type: ignore[arg-type]


def path_of(route: Route, tenant: str = "m", topic: str = "absent") -> str:
    """A path of the route in namespace n of the tenant."""
    names = {"tenant": tenant, "namespace": "n", "domain": "persistent", "bundle": "0x00000000_0xffffffff"}
    names["topic"] = topic
    path = re.sub(r"\{(\w+)\}", lambda name: names.get(name[1], "absent"), route.path)
    return path if "{tenant}" in route.path else f"{path}?tenant={tenant}&property={tenant}"


def admits(letter: str, caller: Caller) -> bool:
    return letter == "open" or (caller.role is not None and caller.role in ADMITTED[letter])


def problem(letter: str, caller: Caller, status: int) -> str | None:
    """Return the mistake in the status of an answer; None when there is none."""
    if admits(letter, caller):
        return f"{status}, but it is admitted" if status in (401, 403) else None
    due = 401 if caller.role is None else REFUSED[letter]
    return None if status == due else f"{status}, not {due}"


async def called(
    session: aiohttp.ClientSession, method: str, url: str, caller: Caller, body: Any = None
) -> int:
    async with session.request(
        method, url, headers=caller.headers, json=body, allow_redirects=False
    ) as response:
        await response.read()
        return response.status


def test_every_route_answers_each_caller_as_its_class_says(secured: Secured) -> None:
    calls = [
        (route, letter, caller)
        for number, (route, letter) in enumerate(_classified(table()))
        for caller in CALLERS
        if number % 10 == 0 or not caller.is_rare
        # The body of some names what is changed: without one, an admitted caller is told so.
        if not (admits(letter, caller) and route.method != "GET")
        if not (route.names_in_body and caller.role is not None)
    ]
    wrong: list[str] = []

    async def main() -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(route: Route, letter: str, caller: Caller) -> None:
            async with slots:
                status = await called(session, route.method, f"{secured.http_url}{path_of(route)}", caller)
            if why := problem(letter, caller, status):
                wrong.append(f"{route.method} {route.path} {letter} as {caller.name}: {why}")

        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            await asyncio.gather(*(one(*call) for call in calls))

    asyncio.run(main())
    print(f"{len(calls)} calls of {len(table())} routes as {len(CALLERS)} kinds of callers")
    assert len(calls) > 7_000
    assert not wrong, "\n".join(wrong)


LEFT_OUT: Final = {"/admin/v2/brokers/shutdown"}
"""It does what it says."""

BODIES: Final[Mapping[str, Any]] = {
    "boolean": True,
    "int": 1,
    "long": 1,
    "String": "x",
    "List<String>": ["standalone"],
    "Set<String>": ["standalone"],
    "List<long>": [0],
    "Set<AuthAction>": ["consume"],
    "Map<String, String>": {"a": "b"},
    "List<GrantTopicPermissionOptions>": [],
    "List<RevokeTopicPermissionOptions>": [],
    "TenantInfo": {"adminRoles": ["admin"], "allowedClusters": ["standalone"]},
}
"""Bodies by the types of routes; for others an empty object."""


def test_calls_that_change_something_are_made_by_those_who_may(expendable: Secured) -> None:
    """Each route has a tenant, a namespace and a topic, which its callers may change or delete."""
    writes = [
        (route, letter)
        for route, letter in _classified(table())
        if route.method != "GET" and route.path not in LEFT_OUT and not route.names_in_body
    ]
    wrong: list[str] = []
    statuses: Counter[int] = Counter()
    root = next(caller for caller in CALLERS if caller.name == "root")

    async def main() -> None:
        slots = asyncio.Semaphore(AT_ONCE)
        base = expendable.http_url

        async def one(number: int, route: Route, letter: str) -> None:
            tenant, body = f"w{number}", BODIES.get(route.body, {}) if route.body else None
            async with slots:
                await _make(session, base, root, tenant)
                for caller in CALLERS:
                    if not admits(letter, caller):
                        continue
                    url = f"{base}{path_of(route, tenant, 't')}"
                    status = await called(session, route.method, url, caller, body)
                    statuses[status] += 1
                    if why := problem(letter, caller, status):
                        wrong.append(f"{route.method} {route.path} {letter} as {caller.name}: {why}")

        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            await asyncio.gather(*(one(number, *write) for number, write in enumerate(writes)))

    asyncio.run(main())
    done = statuses[200] + statuses[204]
    print(f"{statuses.total()} calls of {len(writes)} routes, {done} of them done: {dict(statuses)}")
    assert done > 300, statuses
    assert statuses[500] == 0
    assert not wrong, "\n".join(wrong)


def _classified(table: Iterable[Route]) -> list[tuple[Route, str]]:
    found = [(route, class_of(route.method, route.path)) for route in table]
    unknown = [f"{route.method} {route.path}" for route, letter in found if letter is None]
    assert not unknown, f"the contract has no class for {unknown}"
    return [(route, letter) for route, letter in found if letter is not None]


async def _make(session: aiohttp.ClientSession, base: str, root: Caller, tenant: str) -> None:
    tenants, namespaces = f"{base}/admin/v2/tenants/{tenant}", f"{base}/admin/v2/namespaces/{tenant}/n"
    permissions = f"{namespaces}/permissions"
    for method, url, body in (
        ("PUT", tenants, {"adminRoles": ["admin"], "allowedClusters": ["standalone"]}),
        ("PUT", namespaces, {}),
        ("POST", f"{permissions}/consumer", ["consume"]),
        ("POST", f"{permissions}/producer", ["produce"]),
        ("PUT", f"{base}/admin/v2/persistent/{tenant}/n/t", None),
    ):
        status = await called(session, method, url, root, body)
        assert status == 204, f"{method} {url}: {status}"

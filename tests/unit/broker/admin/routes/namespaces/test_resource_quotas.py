"""Resource quotas over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

DEFAULT = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}
NONE = dict.fromkeys(DEFAULT, 0.0)
ALL = "/resource-quotas"
ONE = f"{ALL}/acme/demo/0x00000000_0x40000000"


def test_the_default_holds_until_a_bundle_has_a_quota_of_its_own(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask(ALL) == DEFAULT
        assert await http.ask(ONE) == DEFAULT
        own = {**DEFAULT, "memory": 3.5, "dynamic": False}
        assert await http.send("POST", ONE, own) == (204, "")
        assert await http.ask(ONE) == own
        assert await http.ask(f"{ALL}/acme/demo/0x40000000_0x80000000") == DEFAULT
        assert await http.send("POST", ALL, {"msgRateIn": 1}) == (204, "")
        changed = {**NONE, "msgRateIn": 1.0, "dynamic": True}
        assert await http.ask(ALL) == changed
        assert await http.ask(ONE) == own
        for _ in range(2):
            assert await http.send("DELETE", ONE) == (204, "")
            assert await http.ask(ONE) == changed

    serving(body)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_only_bundles_that_there_are_have_quotas(serving: Serving, method: str) -> None:
    async def body(http: Http) -> None:
        given: dict[str, float] | None = {} if method == "POST" else None
        name = "acme/demo"
        assert await http.reason(412, method, f"{ALL}/{name}/0x00_0x40", given) == (
            "Invalid upper boundary for bundle acme/demo/0x00000000_0x00000040. "
            "Expected upper boundary of acme/demo/0x00000000_0x40000000"
        )
        reason = await http.reason(412, method, f"{ALL}/{name}/0x10000000_0x40000000", given)
        assert "Invalid lower boundary" in reason
        assert "Invalid bundle range" in await http.reason(412, method, f"{ALL}/{name}/nonsense", given)
        nowhere = f"{ALL}/acme/nope/0x00000000_0x40000000"
        assert await http.reason(404, method, nowhere, given) == "Namespace does not exist"

    serving(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "object"),
        ({"memory": "much"}, "memory must be a number"),
        ({"memory": True}, "memory must be a number"),
        ({"memory": -1}, "0 or more"),
        ({"memory": 10**400}, "out of range"),
        (b'{"memory": 1e999}', "out of range"),
        ({"dynamic": "1"}, "true or false"),
    ],
)
def test_invalid_quota_is_refused_with_the_reason(serving: Serving, body: object, reason: str) -> None:
    async def asked(http: Http) -> None:
        for path in (ALL, ONE):
            assert reason in await http.reason(400, "POST", path, body)
            assert await http.ask(path) == DEFAULT

    serving(asked)

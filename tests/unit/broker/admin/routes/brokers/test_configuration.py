"""Settings that change while brokers run, over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from magnetar.broker.dynamic_config import DYNAMIC

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ALL = "/brokers/configuration"
KEY = "dispatchThrottlingRatePerTopicInMsg"


def test_a_setting_is_changed_and_taken_back(serving: Serving) -> None:
    async def body(http: Http) -> None:
        names = await http.ask(ALL)
        assert names == sorted(DYNAMIC)
        assert await http.ask(f"{ALL}/values") == {}
        assert (await http.ask(f"{ALL}/runtime"))[KEY] == "0"
        assert await http.send("POST", f"{ALL}/{KEY}/7") == (200, "")
        assert await http.send("POST", f"{ALL}/{KEY}/7") == (200, "")
        assert await http.ask(f"{ALL}/values") == {KEY: "7"}
        assert (await http.ask(f"{ALL}/runtime"))[KEY] == "7"
        assert await http.send("DELETE", f"{ALL}/{KEY}") == (200, "")
        assert await http.send("DELETE", f"{ALL}/{KEY}") == (200, "")
        assert await http.ask(f"{ALL}/values") == {}
        assert (await http.ask(f"{ALL}/runtime"))[KEY] == "0"

    serving(body)


def test_every_setting_of_the_broker_is_shown_as_in_a_file(serving: Serving) -> None:
    async def body(http: Http) -> None:
        running = await http.ask(f"{ALL}/runtime")
        assert set(running) > DYNAMIC
        assert running["allowAutoTopicCreation"] == "true"
        assert running["subscriptionTypesEnabled"] == "Exclusive,Shared,Failover,Key_Shared"
        assert running["clusterName"] == "standalone"
        assert all(isinstance(value, str) for value in running.values())

    serving(body)


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("POST", "nosuch/0", "Can't update non-dynamic configuration"),
        ("POST", "clusterName/x", "Can't update non-dynamic configuration"),
        ("DELETE", "nosuch", "Can't update non-dynamic configuration"),
        ("DELETE", "clusterName", "Can't update non-dynamic configuration"),
        ("POST", f"{KEY}/x", "Invalid dynamic-config value"),
        ("POST", f"{KEY}/-2", "below the minimum"),
        ("POST", f"{KEY}/%20", "needs a value"),
        ("POST", "allowAutoTopicCreation/yes", "true or false"),
        ("POST", "allowAutoTopicCreationType/both", "not one of"),
        ("POST", "subscriptionTypesEnabled/Shared,Odd", "not one of"),
    ],
)
def test_invalid_or_static_setting_is_refused_with_the_reason(
    serving: Serving, method: str, path: str, reason: str
) -> None:
    async def body(http: Http) -> None:
        assert reason in await http.reason(412, method, f"{ALL}/{path}")
        assert await http.ask(f"{ALL}/values") == {}

    serving(body)

"""HTTP requests have ids that go into answers and logs; what changes something leaves a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

TENANT = {"allowedClusters": ["standalone"]}


async def asked(http: Http, method: str, path: str, **headers: str) -> tuple[int, str]:
    """Status, and the id of the answer."""
    async with http.client.request(method, f"{http.base}{path}", json=TENANT, headers=headers) as answer:
        return answer.status, answer.headers["X-Request-ID"]


def test_an_answer_carries_the_id_of_its_request_or_one_of_our_own(serving: Serving) -> None:
    async def body(http: Http) -> None:
        given = {"X-Request-ID": "deploy-17"}
        assert await asked(http, "GET", "/admin/v2/clusters", **given) == (200, "deploy-17")
        for path, status in (("/admin/v2/clusters", 200), ("/nowhere", 404), ("/metrics", 200)):
            found, made = await asked(http, "GET", path)
            assert (path, found) == (path, status)
            assert re.fullmatch("[0-9a-f]{16}", made)
        assert re.fullmatch(
            "[0-9a-f]{16}", (await asked(http, "GET", "/health", **{"X-Request-ID": "a b"}))[1]
        )

    serving(body)


def test_each_change_is_one_log_line_with_its_outcome(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with capture_logs() as lines:
            assert (await asked(http, "PUT", "/admin/v2/tenants/new"))[0] == 204
            assert (await asked(http, "PUT", "/admin/v2/tenants/new"))[0] == 409
            assert (await asked(http, "GET", "/admin/v2/tenants/new"))[0] == 200
        told = [
            (line["method"], line["path"], line["status"])
            for line in lines
            if line["event"] == "http request" and line["log_level"] == "info"
        ]
        assert told == [("PUT", "/admin/v2/tenants/new", 204), ("PUT", "/admin/v2/tenants/new", 409)]

    serving(body)


def test_messages_over_http_leave_no_line(serving: Serving) -> None:
    async def body(http: Http) -> None:
        with capture_logs() as lines:
            await asked(http, "POST", "/topics/persistent/public/default/t")
        assert not [each for each in lines if each["event"] == "http request" and each["log_level"] == "info"]

    serving(body)

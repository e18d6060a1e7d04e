"""A redirect carries the id of its request, so that whoever follows it is known by the same; who asked for a
change is logged here, since a broker that it is carried to sees discovery's address."""

from __future__ import annotations

import re

import aiohttp
from structlog.testing import capture_logs

from tests.unit.discovery.front import Front
from tests.unit.discovery.http.test_server import STATS, Browser, with_http


def test_an_answer_carries_the_id_of_its_request_or_one_of_our_own() -> None:
    async def body(front: Front, browse: Browser) -> None:
        await front.own(front.b)
        async with aiohttp.ClientSession() as session:
            for path, status in ((STATS, 307), ("/metrics", 200), ("/nowhere", 404)):
                async with session.get(
                    browse.base + path, allow_redirects=False, headers={"X-Request-ID": "deploy-17"}
                ) as answer:
                    assert (path, answer.status) == (path, status)
                    assert answer.headers["X-Request-ID"] == "deploy-17"
                async with session.get(browse.base + path, allow_redirects=False) as answer:
                    assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-ID"])

    with_http(body)


def test_each_change_request_is_one_log_line_with_the_client_address() -> None:
    async def body(front: Front, browse: Browser) -> None:
        await front.own(front.b)
        async with aiohttp.ClientSession() as session:
            with capture_logs() as lines:
                for method in ("GET", "DELETE"):
                    await session.request(method, browse.base + STATS, allow_redirects=False)
        told = [line for line in lines if line["event"] == "http request" and line["log_level"] == "info"]
        assert [(line["method"], line["path"], line["peer"]) for line in told] == [
            ("DELETE", STATS, "127.0.0.1")
        ]

    with_http(body)

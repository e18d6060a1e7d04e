"""A redirect carries the id of its request, so that whoever follows it is known by the same."""

from __future__ import annotations

import re

import aiohttp

from tests.unit.discovery.front import Front
from tests.unit.discovery.http.test_http_edge import STATS, Browser, with_http


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

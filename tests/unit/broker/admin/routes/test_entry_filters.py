"""There are no entry filters, and whoever wants one hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

NS = "/namespaces/acme/demo/entryFilters"
TOPICS = ["/persistent/acme/demo/t/entryFilters", "/non-persistent/acme/demo/np/entryFilters"]


async def prepare(http: Http) -> None:
    for name in ("persistent://acme/demo/t", "non-persistent://acme/demo/np"):
        http.broker.load(name)


def test_none_is_set_and_none_is_missed(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        for path in (NS, *TOPICS):
            assert await http.send("GET", path) == (200, "")
            for _ in range(2):
                assert await http.send("DELETE", path) == (204, "")
        for path in TOPICS:
            assert await http.ask(f"{path}?applied=true") == {"entryFilterNames": ""}

    serving(body)


@pytest.mark.parametrize("path", [NS, *TOPICS])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"entryFilterNames": "f1"}, "Entry filter 'f1' not found: entry filters are not supported"),
        ({"entryFilterNames": " , f2,f3"}, "Entry filter 'f2' not found"),
        ({"entryFilterNames": ""}, "can't be empty"),
        ({"entryFilterNames": ["f1"]}, "entryFilterNames must be a string"),
        ({}, "the string entryFilterNames"),
        ([], "the string entryFilterNames"),
        (b"", "empty"),
    ],
)
def test_none_can_be_set(serving: Serving, path: str, given: Any, reason: str) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        assert reason in await http.reason(400, "POST", path, given)

    serving(body)


def test_missing_topic_has_no_entry_filters(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for method in ("GET", "POST", "DELETE"):
            await http.reason(404, method, "/namespaces/acme/nope/entryFilters", {"entryFilterNames": "f"})
            await http.reason(404, method, "/persistent/acme/demo/nope/entryFilters", {})

    serving(body)

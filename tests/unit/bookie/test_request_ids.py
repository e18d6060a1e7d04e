"""What a bookie does and logs for a call is done for the request that the broker made it for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import configure
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK

from tests.unit.bookie.grpc_bookie import LEDGER, Bookie, append, with_bookie


@pytest.fixture
def lines(logging_restored: None) -> io.StringIO:
    out = io.StringIO()
    configure("json", stream=out)
    return out


def test_a_read_is_served_under_the_callers_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str | None] = []

    async def scenario(bookie: Bookie) -> None:
        read = bookie.core.read

        def reading(request: Any) -> Any:
            heard.append(request_ids.current())
            return read(request)

        monkeypatch.setattr(bookie.core, "read", reading)
        assert await append(bookie.client, 0, [b"a"]) == (OK, "")
        with request_ids.serving("lookup-1"):
            await bookie.client.read(LEDGER, 0, 0, 100)
        await bookie.client.read(LEDGER, 0, 0, 100)

    with_bookie(tmp_path, scenario)
    assert heard == ["lookup-1", None]


def test_refused_calls_are_a_line_a_second_with_the_callers_request(
    tmp_path: Path, lines: io.StringIO
) -> None:
    async def scenario(bookie: Bookie) -> None:
        await bookie.server.set_serving(serving=False, writable=False)
        for _ in range(20):
            with request_ids.serving("lookup-2"), pytest.raises(BookieUnreachable):
                await bookie.client.describe()

    with_bookie(tmp_path, scenario)
    refused = [json.loads(line) for line in lines.getvalue().splitlines() if "call refused" in line]
    assert {line["request_id"] for line in refused} == {"lookup-2"}
    assert refused[0]["times"] == 1
    # As many as seconds have begun: 20 calls take some milliseconds each on a slow machine.
    assert len(refused) < 10

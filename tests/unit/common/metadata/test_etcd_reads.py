"""Reads of single keys that share requests to etcd."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from etcd3aio import _protobuf as etcd
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.etcd_connection import EtcdRefusal
from magnetar.common.metadata.etcd_reads import LISTED_MAX, UNDER_WAY_MAX, EtcdReads
from magnetar.common.metadata.store import TXN_OPS_MAX, Listing, Versioned

REVISION = 70


class Server:
    """Answers reads once `go` is set; every key but those in `absent` has its name as value."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.requests: list[list[str]] = []
        self.absent: set[str] = set()
        self.refused: set[str] = set()
        self.away = False
        self.listed = 3

    async def call(self, operation: str, request: Any) -> Any:
        together = isinstance(request, etcd.TxnRequest)
        ranges = [op.request_range for op in request.success] if together else [request]
        keys = [each.key.decode() for each in ranges]
        self.requests.append(keys)
        await self.go.wait()
        if self.away:
            raise MetadataError(f"away: {operation}")
        if self.refused & set(keys):
            raise EtcdRefusal(f"refused: {operation}", grpc.StatusCode.PERMISSION_DENIED)
        answers = [self._range(each) for each in ranges]
        if not together:
            answers[0].header.revision = REVISION
            return answers[0]
        found = etcd.TxnResponse(responses=[etcd.ResponseOp(response_range=each) for each in answers])
        found.header.revision = REVISION
        return found

    def _range(self, asked: Any) -> Any:
        key = asked.key.decode()
        if key in self.absent:
            return etcd.RangeResponse()
        names = [f"{key}{number}" for number in range(self.listed)] if asked.range_end else [key]
        answer = etcd.RangeResponse(more=len(names) > LISTED_MAX)
        for name in names[:LISTED_MAX]:
            answer.kvs.add(key=name.encode(), value=name.encode(), mod_revision=7)
        return answer


async def asked(server: Server, keys: list[str]) -> list[Any]:
    """Asks for all keys at once, and lets the server answer when all are under way or waiting."""
    reads = EtcdReads(server.call)
    tasks = [asyncio.ensure_future(reads.get(key)) for key in keys]
    await asyncio.sleep(0)
    server.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_later_reads_share_a_request_and_equal_keys_share_a_read() -> None:
    async def main() -> None:
        server = Server()
        server.absent = {"key-5"}
        keys = [f"key-{number}" for number in range(10)] + ["key-9"] * 3
        found = await asked(server, keys)
        assert found == [None if key == "key-5" else Versioned(key, key.encode(), 7) for key in keys]
        assert server.requests == [*([key] for key in keys[:UNDER_WAY_MAX]), keys[UNDER_WAY_MAX:10]]

    asyncio.run(main())


def test_a_request_has_no_more_keys_than_etcd_takes() -> None:
    async def main() -> None:
        server = Server()
        keys = [f"key-{number}" for number in range(UNDER_WAY_MAX + 2 * TXN_OPS_MAX + 1)]
        assert [found.key for found in await asked(server, keys)] == keys
        assert [len(each) for each in server.requests[UNDER_WAY_MAX:]] == [TXN_OPS_MAX, TXN_OPS_MAX, 1]

    asyncio.run(main())


def test_a_key_that_etcd_refuses_is_refused_to_its_reader_only() -> None:
    async def main() -> None:
        server = Server()
        server.refused = {"key-6"}
        keys = [f"key-{number}" for number in range(9)]
        found = await asked(server, keys)
        assert [type(each) for each in found] == [
            EtcdRefusal if key == "key-6" else Versioned for key in keys
        ]

    asyncio.run(main())


def test_readers_that_wait_learn_that_etcd_does_not_answer_and_later_ones_are_served() -> None:
    async def main() -> None:
        server = Server()
        server.away = True
        reads = EtcdReads(server.call)
        tasks = [asyncio.ensure_future(reads.get(f"key-{number}")) for number in range(20)]
        await asyncio.sleep(0)
        server.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in results} == {MetadataError}
        server.away = False
        found = await asyncio.gather(*(reads.get(f"key-{number}") for number in range(20)))
        assert [each.key for each in found if each is not None] == [f"key-{number}" for number in range(20)]

    asyncio.run(main())


def test_a_cancelled_reader_disturbs_no_other() -> None:
    async def main() -> None:
        server = Server()
        reads = EtcdReads(server.call)
        tasks = [asyncio.ensure_future(reads.get(f"key-{number % 7}")) for number in range(14)]
        await asyncio.sleep(0)
        for cancelled in (tasks[0], tasks[5], tasks[6]):
            cancelled.cancel()
        await asyncio.sleep(0)
        server.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        gone = {number for number, each in enumerate(results) if isinstance(each, BaseException)}
        assert gone == {0, 5, 6}

    asyncio.run(main())


@pytest.mark.parametrize("before", [0, UNDER_WAY_MAX + 1])
def test_short_listings_are_read_with_keys_and_long_ones_are_left_to_pages(before: int) -> None:
    async def main() -> None:
        server = Server()
        reads = EtcdReads(server.call)
        keys = [asyncio.ensure_future(reads.get(f"key-{number}")) for number in range(before)]
        short = asyncio.ensure_future(reads.children("short/"))
        await asyncio.sleep(0)
        server.go.set()
        names = ["short/0", "short/1", "short/2"]
        assert await short == Listing(REVISION, [Versioned(name, name.encode(), 7) for name in names])
        await asyncio.gather(*keys)
        assert len(server.requests) == min(before, UNDER_WAY_MAX) + 1
        server.listed = LISTED_MAX + 1
        assert await reads.children("long/") is None

    asyncio.run(main())

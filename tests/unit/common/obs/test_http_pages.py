"""A small HTTP port answers what it knows and outlives what it does not."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.obs import http_pages
from magnetar.common.obs.http_pages import REQUEST_BYTES_MAX, HttpPages, json_page, text_page


def answers(*requests: bytes) -> list[bytes]:
    async def main() -> list[bytes]:
        def broken() -> tuple[int, str, bytes]:
            raise ValueError("a page's own mistake")

        pages = HttpPages(
            {
                "/health": lambda: json_page(200, {"up": True}),
                "/plain": lambda: text_page((503, "not yet\n")),
                "/broken": broken,
            }
        )
        port = await pages.start("127.0.0.1", 0)
        found = []
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            try:
                found.append(await reader.read())
            except ConnectionError:
                found.append(b"")
            writer.close()
        await pages.close()
        await pages.close()
        return found

    return asyncio.run(main())


def test_a_page_comes_with_its_length() -> None:
    (answer,) = answers(b"GET /health?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == b'{"up": true}\n'


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /none HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /health HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"503"),
        (b"x" * (2 * REQUEST_BYTES_MAX), b""),
    ],
)
def test_other_requests_are_answered_or_dropped_and_the_next_is_served(
    request_bytes: bytes, status: bytes
) -> None:
    first, second = answers(request_bytes, b"GET /health HTTP/1.0\r\n\r\n")
    assert first[9:12] == status
    assert second.startswith(b"HTTP/1.1 200")


def test_a_page_of_plain_text_has_its_own_status() -> None:
    (answer,) = answers(b"GET /plain HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Content-Type: text/plain; charset=utf-8\r\n" in answer
    assert answer.endswith(b"\r\n\r\nnot yet\n")


def test_idle_connections_give_way_to_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pages, "CONNECTIONS_MAX", 2)

    async def main() -> None:
        pages = HttpPages({"/livez": lambda: text_page((200, "ok\n"))})
        port = await pages.start("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in (await asyncio.open_connection("127.0.0.1", port), silent[1]):
            writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 30)).endswith(b"ok\n")
            writer.close()
        assert await asyncio.wait_for(silent[0][0].read(), 30) == b""
        silent[0][1].close()
        await pages.close()

    asyncio.run(main())

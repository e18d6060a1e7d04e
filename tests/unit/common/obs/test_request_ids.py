"""A line of the log names the request that it is about, while that is served, and no other."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import configure, get_logger


@pytest.fixture
def lines(logging_restored: None) -> io.StringIO:
    out = io.StringIO()
    configure("json", stream=out)
    return out


def told(out: io.StringIO) -> list[dict[str, str]]:
    """All lines but those of asyncio's debug mode, which tells of each callback that a busy machine slows."""
    return [
        event for line in out.getvalue().splitlines() if (event := json.loads(line))["logger"] != "asyncio"
    ]


def ids(out: io.StringIO) -> list[str | None]:
    return [event.get("request_id") for event in told(out)]


def test_lines_within_a_request_carry_its_id_and_others_none(lines: io.StringIO) -> None:
    log = get_logger("magnetar.test")
    log.info("before")
    with request_ids.serving("r1"):
        log.info("within")
        logging.getLogger("a_library").warning("of a library")
        with request_ids.serving("r2"):
            log.info("of a request within")
        log.info("within again")
    log.info("after")
    assert ids(lines) == [None, "r1", "r1", "r2", "r1", None]


def test_an_id_that_the_event_has_of_its_own_stays(lines: io.StringIO) -> None:
    with request_ids.serving("r1"):
        get_logger("magnetar.test").info("forwarded", request_id="theirs")
    assert ids(lines) == ["theirs"]


def test_requests_that_are_served_at_once_do_not_mix(lines: io.StringIO) -> None:
    log = get_logger("magnetar.test")

    async def serve(request_id: str, turn: asyncio.Event, others: asyncio.Event) -> None:
        with request_ids.serving(request_id):
            turn.set()
            await others.wait()
            log.info("done", mine=request_id)

    async def main() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(30):
            await asyncio.gather(serve("r1", first, second), serve("r2", second, first))

    asyncio.run(main())
    for event in told(lines):
        assert event["request_id"] == event["mine"]


def test_a_task_that_outlives_its_request_does_not_speak_for_it(lines: io.StringIO) -> None:
    log = get_logger("magnetar.test")

    async def main() -> None:
        go_on = asyncio.Event()

        async def topic() -> None:
            log.info("loaded for the request")
            await go_on.wait()
            log.info("much later")
            assert request_ids.call_metadata() == ()

        with request_ids.serving("r1"):
            task = asyncio.create_task(topic())
            await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(30):
            await task

    asyncio.run(main())
    assert ids(lines) == ["r1", None]


def test_a_call_says_the_id_and_its_server_takes_it() -> None:
    assert request_ids.call_metadata() == ()
    with request_ids.serving("r1"):
        said = request_ids.call_metadata()
    assert said == (("x-request-id", "r1"),)
    with request_ids.serving_call((("other", "x"), *said)):
        assert request_ids.current() == "r1"
    assert request_ids.current() is None


def test_a_call_without_an_id_is_given_none() -> None:
    for metadata in (None, (), (("other", "x"),), (("x-request-id", b"bad\nid"),)):
        with request_ids.serving_call(metadata):
            assert request_ids.current() is None


@pytest.mark.parametrize(
    "good", ["a", "0123456789abcdef", "127.0.0.1:5000#7", "[::1]:5000#-", "a-b_c/d=e+f@g"]
)
def test_ids_of_others_are_kept(good: str) -> None:
    assert request_ids.accepted(good) == good
    assert request_ids.accepted(good.encode()) == good
    assert request_ids.accepted_or_made(good) == good


@pytest.mark.parametrize(
    "bad", ["", " ", "a b", "a\nb", "a\r\n", '"', "ü", "x" * (request_ids.CHARS_MAX + 1), None]
)
def test_unsafe_request_id_is_replaced(bad: str | None) -> None:
    assert request_ids.accepted(bad) is None
    made = request_ids.accepted_or_made(bad)
    assert len(made) == 16
    assert request_ids.accepted(made) == made


def test_a_command_is_named_by_its_client_and_its_number() -> None:
    assert request_ids.of_command("10.0.0.1:5000", 0) == "10.0.0.1:5000#0"
    assert request_ids.of_command("10.0.0.1:5000", None) == "10.0.0.1:5000#-"

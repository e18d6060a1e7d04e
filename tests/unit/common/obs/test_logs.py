"""One line an event, in the form asked for, from our loggers and the standard library's alike."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest
from magnetar.common.obs.logs import configure, get_logger

pytestmark = pytest.mark.usefixtures("logging_restored")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_json_lines_carry_the_event_its_values_logger_level_and_time() -> None:
    out = io.StringIO()
    configure("json", stream=out)
    get_logger("magnetar.test").info("topic loaded", topic="t", ms=3)
    event = json.loads(out.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("timestamp"))
    assert event == {
        "event": "topic loaded",
        "topic": "t",
        "ms": 3,
        "logger": "magnetar.test",
        "level": "info",
    }


def test_process_fields_are_in_every_log_line() -> None:
    out = io.StringIO()
    configure("json", stream=out, fields={"worker": 1})
    get_logger("magnetar.test").info("topic loaded")
    logging.getLogger("grpc").error("gone")
    assert [json.loads(line)["worker"] for line in out.getvalue().splitlines()] == [1, 1]
    get_logger("magnetar.test").info("worker started", worker=7)
    assert json.loads(out.getvalue().splitlines()[-1])["worker"] == 7


def test_console_lines_are_key_value_and_colored_on_a_terminal_only() -> None:
    plain, terminal = io.StringIO(), Terminal()
    for out in (plain, terminal):
        configure("console", stream=out)
        get_logger("magnetar.test").info("topic loaded", topic="t", ms=3)
    assert re.search(r"^\S+Z \[info\s*\] topic loaded \[magnetar.test\] ms=3 topic=t\n$", plain.getvalue())
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[" in terminal.getvalue()


def test_auto_is_console_on_a_terminal_and_json_elsewhere() -> None:
    file, terminal = io.StringIO(), Terminal()
    for out in (file, terminal):
        configure("auto", stream=out)
        get_logger("magnetar.test").info("hello")
    assert json.loads(file.getvalue())["event"] == "hello"
    assert not terminal.getvalue().startswith("{")


def test_events_below_the_level_are_dropped() -> None:
    out = io.StringIO()
    configure("json", level="warning", stream=out)
    log = get_logger("magnetar.test")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]


def test_a_logger_made_before_configure_follows_it() -> None:
    log = get_logger("magnetar.test")
    out = io.StringIO()
    configure("json", stream=out)
    log.info("hello")
    assert json.loads(out.getvalue())["logger"] == "magnetar.test"


def test_the_standard_library_comes_out_in_the_same_form() -> None:
    out = io.StringIO()
    configure("json", stream=out)
    logging.getLogger("asyncio").warning("slow %s", "callback")
    event = json.loads(out.getvalue())
    assert (event["event"], event["logger"], event["level"]) == ("slow callback", "asyncio", "warning")


@pytest.mark.parametrize("format", ["json", "console"])
def test_exceptions_carry_their_traceback(format: str) -> None:
    out = io.StringIO()
    configure(format, stream=out)  # type: ignore[arg-type]
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("magnetar.test").exception("failed")
    assert "ValueError: broken" in out.getvalue()
    assert "test_logs.py" in out.getvalue()
    assert format == "console" or len(out.getvalue().splitlines()) == 1


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown log level 'loud'"):
        configure(level="loud")

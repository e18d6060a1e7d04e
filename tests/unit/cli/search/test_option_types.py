"""Times, ids and properties of the command line, and bounds of a search."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.cli.search.message_lines import message_line, time_text
from magnetar.cli.search.option_types import MESSAGE_ID, PROPERTY, GivenId, Moment, id_text
from magnetar.cli.search.search_bounds import SearchBounds
from magnetar.cli.search.topic_search import missing_packages
from magnetar.ledger.cold.search.condition import MessagePosition, SearchedMessage

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("3h", NOW_MS - 3 * 3_600_000),
        ("90s", NOW_MS - 90_000),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14T23:13:20.5+01:00", NOW_MS + 500),
        ("2023-11-14", NOW_MS - 80_000_000),
    ],
)
def test_a_time_is_a_number_an_age_or_iso(given: str, expected: int) -> None:
    assert Moment(lambda: NOW_MS).convert(given, None, None) == expected


@pytest.mark.parametrize("given", ["yesterday", "", "-3h", "3x", "2023-13-01"])
def test_another_time_is_a_usage_error_with_the_forms(given: str) -> None:
    with pytest.raises(click.BadParameter, match="write it as 2026-11-21T19:30:00Z"):
        Moment(lambda: NOW_MS).convert(given, None, None)


@pytest.mark.parametrize(
    ("given", "position", "partition"),
    [
        ("7:3", MessagePosition(7, 3), None),
        ("7:3:-1", MessagePosition(7, 3), -1),
        ("7:3:2", MessagePosition(7, 3), 2),
        ("7:3:-1:5", MessagePosition(7, 3, 5), -1),
    ],
)
def test_an_id_is_read_as_it_is_printed(given: str, position: MessagePosition, partition: int | None) -> None:
    assert MESSAGE_ID.convert(given, None, None) == GivenId(position, partition)
    if partition is not None:
        assert id_text(position, partition) == given


@pytest.mark.parametrize("given", ["7", "7:", "a:b", "7:3:-2", "7:3:0:-1", "7:3:0:1:2"])
def test_another_id_is_a_usage_error(given: str) -> None:
    with pytest.raises(click.BadParameter, match="write it as commands print it"):
        MESSAGE_ID.convert(given, None, None)


def test_a_property_has_a_value_or_any() -> None:
    assert PROPERTY.convert("a=b=c", None, None) == ("a", "b=c")
    assert PROPERTY.convert("a=", None, None) == ("a", "")
    assert PROPERTY.convert("a", None, None) == ("a", None)
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        PROPERTY.convert("=b", None, None)


def test_a_bound_says_what_it_means() -> None:
    seconds, read, interrupted = 0.0, 0, False
    bounds = SearchBounds(
        limit=2,
        max_bytes=1_000,
        timeout_s=60,
        now=lambda: seconds,
        bytes_read=lambda: read,
        is_interrupted=lambda: interrupted,
    )
    assert bounds.reached() == ""
    read = 2_048
    told = bounds.sentence(bounds.reached())
    assert told == "not everything was searched: stopped after 2 KiB (--max-bytes)"
    read, seconds = 999, 60.0
    assert bounds.sentence(bounds.reached()) == (
        "not everything was searched: stopped after 1 min (--timeout)"
    )
    interrupted = True
    assert bounds.sentence(bounds.reached()) == "not everything was searched: interrupted"
    bounds.found = 2
    assert bounds.sentence(bounds.reached()) == "stopped at 2 matches (--limit)"


def searched(**fields: object) -> SearchedMessage:
    given = {
        "topic": "persistent://public/default/t",
        "partition": -1,
        "position": MessagePosition(7, 3),
        "key": None,
        "key_bytes": None,
        "properties": {},
        "publish_time_ms": NOW_MS + 5,
        "event_time_ms": 0,
        "producer_name": "p",
        "sequence_id": 1,
        "payload": b"hello",
    }
    return SearchedMessage(**{**given, **fields})  # type: ignore[arg-type]


def test_a_line_is_one_line_without_control_characters_and_bounded() -> None:
    assert message_line(searched(), 0) == "2023-11-14T22:13:20.005Z  7:3:-1  hello"
    line = message_line(
        searched(key="k\x1b", properties={"a": "b\nc"}, payload=b"x\r\n\x1b[2J" + b"y" * 50, partition=3), 10
    )
    assert line.isprintable()
    assert line.startswith("2023-11-14T22:13:20.005Z  7:3:3  key=k\N{REPLACEMENT CHARACTER}  a=b c  x")
    assert line.endswith("yyy...")
    assert message_line(searched(payload=b"\xff\x00"), 0).endswith("  0xff00")
    assert message_line(searched(is_null=True, payload=b""), 0).endswith("(no value)")
    assert message_line(searched(unreadable="encrypted", payload=b""), 0).endswith("(encrypted)")


def test_a_time_outside_of_the_calendar_is_its_number() -> None:
    assert time_text(2**63 - 1) == str(2**63 - 1)


def test_missing_packages_are_named_with_the_way_around_them() -> None:
    told = missing_packages(ModuleNotFoundError(name="pyarrow.parquet"))
    assert told is not None
    assert "make setup-spark" in told.message
    assert "--through-brokers" in told.message
    assert missing_packages(ModuleNotFoundError(name="magnetar.broker")) is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["find", "t", "--since", "2", "--until", "2"], "--since is not before --until"),
        (["topics", "tail", "a", "b", "--regex"], "--regex takes one expression"),
        (["topics", "list", "public/default"], "Did you mean 'admin topics list'?"),
        (["topics", "tial"], "Did you mean 'tail'?"),
    ],
)
def test_a_command_that_makes_no_sense_is_a_usage_error(arguments: list[str], reason: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_a_search_without_a_broker_names_the_url() -> None:
    done = CliRunner().invoke(main, ["find", "t", "--admin-url", "http://127.0.0.1:1"])
    assert done.exit_code == 3
    assert "no broker answers at http://127.0.0.1:1" in done.stderr

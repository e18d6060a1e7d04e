"""Messages on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys

import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.cli.message_output import printable, show_content, show_text
from magnetar.common.wire.pulsar_pb2 import KeyValue, SingleMessageMetadata

from tests.unit.cli.admin.test_http_client import Broker, broker

__all__ = ["broker"]

HOSTILE = "\x1b]0;owned\x07 grüße 🌍\t\n\x9b31m\x00"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_message_steers_no_terminal_and_a_program_gets_every_byte(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    raw = io.BytesIO()
    out = (Terminal if on_terminal else io.TextIOWrapper)(raw, encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    show_text(HOSTILE, end="")
    show_content(HOSTILE.encode() + b"\xff")
    out.flush()
    if on_terminal:
        shown = raw.getvalue().decode()
        assert "\ufffd]0;owned\ufffd grüße 🌍\t\n\ufffd31m\ufffd" in shown
        assert printable(shown) == shown
    else:
        assert raw.getvalue() == HOSTILE.encode() * 2 + b"\xff\n"
    monkeypatch.undo()


def batch(*texts: bytes) -> bytes:
    found = b""
    for text in texts:
        metadata = SingleMessageMetadata(
            payload_size=len(text), partition_key="k", properties=[KeyValue(key="a", value="b")]
        ).SerializeToString()
        found += len(metadata).to_bytes(4, "big") + metadata + text
    return found


def test_peeked_batches_are_shown_message_by_message(broker: Broker) -> None:
    path = "/admin/v2/persistent/t/n/x/subscription/s/position/1"
    broker.raw["GET", path] = batch(b"one", b"two"), {"X-Pulsar-num-batch-message": "2"}
    arguments = ["admin", "--admin-url", broker.url, "topics", "peek-messages", "t/n/x", "-s", "s"]
    assert CliRunner().invoke(main, arguments).stdout == (
        "X-Pulsar-num-batch-message: 2\n"
        "----- message 1 of 2 -----\nkey:[k], properties:[a=b], content:one\n"
        "----- message 2 of 2 -----\nkey:[k], properties:[a=b], content:two\n"
    )
    broker.raw["GET", path] = b"sealed", {"X-Pulsar-num-batch-message": "2"}
    assert CliRunner().invoke(main, arguments).stdout == "X-Pulsar-num-batch-message: 2\nsealed\n"


def test_peeking_leaves_out_open_and_aborted_transactions_unless_they_are_asked_for(broker: Broker) -> None:
    path = "/admin/v2/persistent/t/n/x/subscription/s/position"
    for number, flag in enumerate(("aborted", "uncommitted", "none"), 1):
        broker.raw["GET", f"{path}/{number}"] = f"{flag}".encode(), {f"X-Pulsar-txn-{flag}": "true"}
    arguments = ["admin", "--admin-url", broker.url, "topics", "peek-messages", "t/n/x", "-s", "s"]
    assert CliRunner().invoke(main, arguments).stdout == "X-Pulsar-txn-none: true\nnone\n"
    everything = [*arguments, "-n", "3", "--transaction-isolation-level", "READ_UNCOMMITTED"]
    shown = CliRunner().invoke(main, everything).stdout.splitlines()
    assert shown[1::2] == ["aborted", "uncommitted", "none"]


def test_a_peeked_entry_that_is_encrypted_is_not_printed(broker: Broker) -> None:
    path = "/admin/v2/persistent/t/n/x/ledger/3/entry/4"
    broker.raw["GET", path] = (
        b"\x1bsealed",
        {"X-Pulsar-Is-Encrypted": "true", "X-Pulsar-num-batch-message": "2"},
    )
    arguments = [
        "admin",
        "--admin-url",
        broker.url,
        "topics",
        "get-message-by-id",
        "t/n/x",
        "-l",
        "3",
        "-e",
        "4",
    ]
    shown = CliRunner().invoke(main, arguments).stdout
    assert shown.endswith("\nencrypted: 7 bytes; consume it with the private key to read it\n")
    assert "sealed" not in shown

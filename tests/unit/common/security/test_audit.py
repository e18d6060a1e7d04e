"""The audit log: one JSON object a line, bounded, in a file of its own."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.obs import request_ids
from magnetar.common.security import audit as audit_module
from magnetar.common.security.audit import (
    EVENTS_PER_SECOND_MAX,
    TEXT_CHARS_MAX,
    audit,
    audit_process,
    open_audit_file,
)
from magnetar.common.security.principal import Principal

ALICE = Principal("alice", "bob", method="token", address="10.0.0.1:5")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "audit.log"
    monkeypatch.setattr(audit_module, "_bounds", {})
    open_audit_file(str(path))
    yield path
    open_audit_file("")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_says_who_did_what_to_what(file: Path) -> None:
    with request_ids.serving("r-1"):
        audit(
            "admin call", principal=ALICE, resource="/x", action="PUT", outcome="done", status=204, old=None
        )
    [line] = lines(file)
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "event": "admin call",
        "request_id": "r-1",
        "principal": "alice",
        "original_principal": "bob",
        "auth_method": "token",
        "address": "10.0.0.1:5",
        "resource": "/x",
        "action": "PUT",
        "outcome": "done",
        "status": 204,
    }


def test_the_file_is_for_its_owner_alone(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_a_file_that_was_moved_away_is_made_anew(file: Path) -> None:
    audit("first", principal=ALICE)
    file.rename(file.with_suffix(".1"))
    audit("second", principal=ALICE)
    assert [line["event"] for line in lines(file)] == ["second"]


def test_nothing_is_written_without_authentication(file: Path) -> None:
    audit("admin call", principal=None)
    assert lines(file) == []


def test_long_texts_are_cut(file: Path) -> None:
    audit("admin call", principal=ALICE, resource="x" * 10_000)
    [line] = lines(file)
    assert len(line["resource"]) == TEXT_CHARS_MAX


def test_events_of_one_kind_are_bounded_and_the_next_line_says_so(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(EVENTS_PER_SECOND_MAX + 7):
        audit("authorization refused", principal=ALICE)
    audit("other", principal=ALICE)
    assert len(lines(file)) == EVENTS_PER_SECOND_MAX + 1
    now = 101.0
    audit("authorization refused", principal=ALICE)
    assert lines(file)[-1]["left_out"] == 7


def test_without_a_file_events_are_in_the_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_bounds", {})
    audit("admin call", principal=ALICE, action="PUT")
    out = capsys.readouterr()
    assert "admin call" in out.out + out.err


def test_events_of_the_process_are_in_the_file_alone_and_bounded(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit_process("reload", setting="basicAuthConf", outcome="done")
    [line] = lines(file)
    assert line.pop("timestamp")
    assert line == {"event": "reload", "setting": "basicAuthConf", "outcome": "done"}
    for _ in range(EVENTS_PER_SECOND_MAX * 3):
        audit_process("reload", setting="basicAuthConf", outcome="failed")
    assert len(lines(file)) <= EVENTS_PER_SECOND_MAX * 2 + 1
    open_audit_file("")
    audit_process("reload", setting="other", outcome="done")
    assert "other" not in capsys.readouterr().out

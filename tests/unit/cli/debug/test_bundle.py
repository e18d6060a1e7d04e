"""The debug bundle: bounded, complete as far as possible, and what failed is named."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.debug import bundle as bundle_module
from magnetar.cli.debug.bundle import PARTS, Bundle, collect
from magnetar.cli.debug.command import debug


def content(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
        return found


def answer(path: str, remaining_s: float) -> Any:
    assert remaining_s > 0
    if path == "/metrics":
        return "magnetar_topics 5\n"
    if "leaderBroker" in path:
        raise click.ClickException("no leader with tokenSecretKey=hush-hush")
    if "of=subscriptions" in path:
        return {"rows": [{"topic": "t", "subscription": f"s{n}", "msgBacklog": 30 - n} for n in range(40)]}
    return {"path": path, "tokenSecretKey": "hush-hush"}


def test_every_part_is_there_and_one_that_fails_is_named(tmp_path: Path) -> None:
    found = Bundle(deadline=100.0, clock=lambda: 0.0)
    names = list(collect(found, answer, lambda topic, name: f"/explain/{topic}/{name}"))
    log = tmp_path / "broker.log"
    log.write_text("started password=hush-hush\n")
    found.add_log(log)
    found.add_log(tmp_path / "none.log")
    path = tmp_path / "b.tar.gz"
    found.write(path, {"adminUrl": "http://b"}, 7.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = content(path)
    manifest = json.loads(files["manifest.json"])
    assert manifest["adminUrl"] == "http://b"
    assert {name for name, _ in PARTS} - files.keys() == {"cluster/leader.json"}
    assert manifest["failed"]["cluster/leader.json"] == "no leader with tokenSecretKey=(hidden)"
    assert "No such file" in next(why for name, why in manifest["failed"].items() if "none.log" in name)
    explained = [name for name in names if name.startswith("explain/")]
    assert len(explained) == 20, "30 have a backlog; the rest is left out"
    assert json.loads(files[explained[0]])["path"] == "/explain/t/s0"
    assert "hush-hush" not in "".join(files.values())


def test_the_time_limit_ends_the_questions_and_the_archive_is_written(tmp_path: Path) -> None:
    now = [0.0]

    def slow(path: str, remaining_s: float) -> Any:
        now[0] += 40.0
        return {"rows": []}

    found = Bundle(deadline=100.0, clock=lambda: now[0])
    list(collect(found, slow, lambda topic, name: ""))
    assert len(found.files) == 3
    assert len(found.failures) == len(PARTS) - 3
    assert set(found.failures.values()) == {"not asked for: the time limit was reached"}


def test_files_and_their_sum_are_bounded_and_logs_keep_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "PART_BYTES_MAX", 100)
    monkeypatch.setattr(bundle_module, "TOTAL_BYTES_MAX", 250)
    found = Bundle()
    found.add("a", "x" * 150)
    log = tmp_path / "l"
    log.write_text("".join(f"line {number:03}\n" for number in range(100)))
    found.add_log(log)
    found.add("b", "y" * 150)
    found.add("c", "z")
    (logged,) = [data for name, data in found.files.items() if name.startswith("logs/")]
    assert logged.endswith(b"line 099\n")
    assert logged.startswith(b"line ")
    assert sum(map(len, found.files.values())) <= 250
    assert max(map(len, found.files.values())) <= 100
    assert found.cut["a"] == 50
    assert found.cut["logs/1-l"] >= 800


def test_without_a_broker_there_is_a_bundle_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    arguments = ["bundle", "--admin-url", "http://127.0.0.1:9", "--file", str(path)]
    done = CliRunner().invoke(debug, arguments)
    assert done.exit_code == 0, done.output
    files = content(path)
    assert json.loads(files["client/versions.json"])["packages"]["magnetar-cli"]
    assert "no broker answers" in json.loads(files["manifest.json"])["failed"]["broker/version.json"]
    again = CliRunner().invoke(debug, arguments)
    assert "already exists; name another file with --file" in again.output

"""What `magnetar admin bookies` says, and what it writes, over a metadata store with a small cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import (
    BookieCookie,
    BookieRegistration,
    Counter,
    Decommission,
    Leader,
    LedgerMetadata,
    UnderReplicated,
    decode,
    encode,
)

from tests.unit.common.metadata.in_a_file import with_store

KEYS = Keys("eu")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """b1 and b2 are up (b2 read-only), b3 is down; two ledgers, one of them marked."""
    path = tmp_path / "metadata.sqlite"

    async def fill(store: MetadataStore) -> None:
        for number in (1, 2, 3):
            cookie = BookieCookie(bookie_id=f"b{number}", created_ms=1)
            await store.put(KEYS.cookie(f"b{number}"), encode(cookie))
        for number in (1, 2):
            value = BookieRegistration(
                bookie_id=f"b{number}",
                address=f"10.0.0.{number}:3181",
                rack="/eu/a",
                read_only=number == 2,
                free_bytes=1 << 30,
                started_ms=1_600_000_000_000,
            )
            await store.put(KEYS.bookie(f"b{number}"), encode(value))
        ledger = LedgerMetadata(
            state=LedgerMetadata.CLOSED, ensemble_size=3, write_quorum=2, ack_quorum=2, last_entry_id=29
        )
        ledger.ref.id = 1
        ledger.fragments.add(first_entry_id=0, bookie_ids=["b1", "b2", "b3"])
        await store.put(KEYS.ledger(1), encode(ledger))
        ledger.ref.id, ledger.state, ledger.last_entry_id = 2, LedgerMetadata.OPEN, -1
        ledger.gaps.add(bookie_id="b3", first_entry_id=3, last_entry_id=5)
        await store.put(KEYS.ledger(2), encode(ledger))
        await store.put(KEYS.ledger_id_counter, encode(Counter(next=3)))
        mark = UnderReplicated(missing_bookie_ids=["b3"], created_ms=1_600_000_000_000)
        await store.put(KEYS.under_replicated(1), encode(mark))
        await store.put(KEYS.replication_lock(1), encode(Leader(id="b1")))
        leader = Leader(id="b1", epoch=7, since_ms=1_600_000_000_000)
        await store.put(KEYS.auditor, encode(leader))

    with_store(path, fill)
    return path


def admin(path: Path, *arguments: str, output: str = "auto") -> Result:
    options = ["--metadata", f"sqlite:{path}", "--cluster", "eu", "--output", output]
    return CliRunner().invoke(main, ["admin", *options, "bookies", *arguments])


def test_the_list_has_every_bookie_with_its_state(path: Path) -> None:
    lines = [line.split("\t") for line in admin(path, "list").stdout.splitlines()]
    assert lines[0][:4] == ["id", "state", "rack", "address"]
    assert [(line[0], line[1], line[3]) for line in lines[1:]] == [
        ("b1", "up", "10.0.0.1:3181"),
        ("b2", "read-only", "10.0.0.2:3181"),
        ("b3", "down", ""),
    ]


def test_programs_get_json(path: Path) -> None:
    rows = json.loads(admin(path, "list", output="json").stdout)
    assert rows[0]["free_bytes"] == 1 << 30
    assert rows[0]["up_since"] == "2020-09-13T12:26:40Z"
    assert rows[2]["free_bytes"] is None


@pytest.mark.parametrize("command", [["list"], ["show", "b1"], ["under-replicated"], ["recover-status"]])
def test_people_get_a_table(path: Path, command: list[str]) -> None:
    result = admin(path, *command, output="table")
    assert result.exit_code == 0
    assert "b1" in result.stdout
    assert "─" in result.stdout


def test_one_bookie_s_share_is_counted(path: Path) -> None:
    facts = json.loads(admin(path, "show", "b3", output="json").stdout)
    assert facts["ledgers"] == 2
    assert facts["closed_fragments"] == 1
    assert facts["entries_in_closed_fragments"] == 20
    assert facts["open_fragments"] == 1
    assert facts["gaps"] == 1


def test_marks_say_what_is_missing_and_who_copies(path: Path) -> None:
    [row] = json.loads(admin(path, "under-replicated", output="json").stdout)
    assert row == {
        "ledger": 1,
        "missing_bookies": ["b3"],
        "since": "2020-09-13T12:26:40Z",
        "copied_by": "b1",
    }


def test_the_status_names_the_auditor_and_who_is_away(path: Path) -> None:
    facts = json.loads(admin(path, "recover-status", output="json").stdout)
    assert facts["auditor"] == "b1"
    assert facts["auditor_epoch"] == 7
    assert facts["bookies_down"] == ["b3"]
    assert facts["under_replicated_ledgers"] == facts["ledgers_in_progress"] == 1


def test_a_wish_is_recorded_and_may_be_withdrawn(path: Path) -> None:
    assert admin(path, "decommission", "b3", "--no-wait").exit_code == 0
    assert admin(path, "decommission", "b3", "--no-wait").exit_code == 0, "saying it twice is no error"

    async def recorded(store: MetadataStore) -> None:
        found = await store.get(KEYS.decommission("b3"))
        assert found is not None
        assert decode(Decommission, found.value).bookie_id == "b3"

    with_store(path, recorded)
    assert json.loads(admin(path, "list", output="json").stdout)[2]["state"] == "decommissioning"
    assert admin(path, "recommission", "b3").exit_code == 0
    assert json.loads(admin(path, "list", output="json").stdout)[2]["state"] == "down"
    assert admin(path, "recommission", "b3").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["decommission", "b9"], "bookie 'b9' not found"),
        (["decommission", "b1"], "no other bookie is up and writable"),
        (["show", "b9"], "bookie 'b9' not found"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    path: Path, arguments: list[str], reason: str
) -> None:
    result = admin(path, *arguments)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_a_store_that_does_not_exist_is_a_wrong_command_line() -> None:
    result = CliRunner().invoke(main, ["admin", "--metadata", "nonsense", "bookies", "list"])
    assert result.exit_code == 2
    assert "Error: --metadata: metadata store 'nonsense': write etcd:" in result.stderr


@pytest.mark.parametrize("output", ["auto", "table"])
def test_progress_is_followed_until_the_bookie_has_left(
    path: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is locked by the command, so its own loop plays the cluster's part."""
    from magnetar.cli.admin.bookies import decommission

    follow = decommission._follow

    async def cluster(store: MetadataStore) -> None:
        found = await store.get(KEYS.decommission("b3"))
        assert found is not None
        wish = decode(Decommission, found.value)
        wish.ledgers, wish.audited_ms = 3, 1
        version = await store.put(found.key, encode(wish), found.version)
        await asyncio.sleep(0.05)
        await store.delete(KEYS.under_replicated(1))
        await asyncio.sleep(0.05)
        await store.delete(KEYS.cookie("b3"))
        await store.delete(found.key, version)

    async def followed(
        metadata: MetadataStore, keys: Keys, bookie_id: str, report: decommission.Report
    ) -> None:
        await asyncio.gather(follow(metadata, keys, bookie_id, report), cluster(metadata))

    monkeypatch.setattr(decommission, "_follow", followed)
    result = admin(path, "decommission", "b3", output=output)
    assert result.exit_code == 0, result.output
    assert "b3 is decommissioned" in result.stdout
    if output == "auto":
        assert "b3: 2 of 3 ledgers moved" in result.stdout
        assert "b3: 3 of 3 ledgers moved" in result.stdout
    else:
        assert "ledgers moved off b3" in result.stdout


@pytest.mark.parametrize("verb", [("list",), ("show", "b1"), ("recover-status",)])
def test_a_wrong_cluster_name_is_an_error_that_says_so(path: Path, verb: tuple[str, ...]) -> None:
    options = ["--metadata", f"sqlite:{path}", "--cluster", "us"]
    done = CliRunner().invoke(main, ["admin", *options, "bookies", *verb])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cluster 'us' has no bookies in sqlite:" in done.stderr
    assert "MAGNETAR_CLUSTER_NAME" in done.stderr

"""`magnetar admin metadata` over stores of its own; with bookies it is in tests/cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from magnetar.cli.admin.metadata import reconciliation
from magnetar.cli.main import main
from magnetar.common.metadata.backup_file import verify_backup
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BookieCookie, Counter, Restoration, Tenant, decode, encode

from tests.unit.common.metadata.in_a_file import with_store

KEYS = Keys("eu")


@pytest.fixture(autouse=True)
def logging_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """These commands configure it for their process, which is the tests' here, and write to a runner."""
    monkeypatch.setattr(reconciliation, "configure", lambda **_: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cluster with one tenant."""
    path = tmp_path / "metadata.sqlite"

    async def fill(store: MetadataStore) -> None:
        await store.put(KEYS.tenant("acme"), encode(Tenant(admin_roles=["ops"])))
        await store.put(KEYS.ledger_id_counter, encode(Counter(next=3)))

    with_store(path, fill)
    return path


def admin(path: Path, *arguments: str) -> Result:
    options = ["--metadata", f"sqlite:{path}", "--cluster", "eu"]
    return CliRunner().invoke(main, ["admin", *options, "metadata", *arguments])


def facts(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    found = {}
    for line in result.stdout.splitlines():
        name, _, value = line.partition("\t")
        found[name] = value
    return found


def test_a_copy_is_taken_looked_at_and_put_back(path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "copy.gz", tmp_path / "other.sqlite"
    assert facts(admin(path, "backup", str(file)))["keys"] == "2"
    assert verify_backup(file).header.cluster == "eu"
    seen = facts(admin(path, "verify", str(file)))
    assert (seen["cluster"], seen["keys"]) == ("eu", "2")
    restored = admin(other, "restore", str(file), "--skip-ids", "5000")
    assert facts(restored)["state"] == "restored"
    assert "magnetar admin metadata reconcile" in restored.stderr
    assert facts(admin(other, "status"))["unnamed_ledgers_below"] == "5003"

    async def check(store: MetadataStore) -> None:
        found = await store.get(KEYS.tenant("acme"))
        assert found is not None
        assert decode(Tenant, found.value).admin_roles == ["ops"]

    with_store(other, check)


def test_a_copy_replaces_no_file_and_is_of_something(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.gz"
    file.write_text("x")
    result = admin(path, "backup", str(file))
    assert (result.exit_code, "replaces nothing" in result.stderr) == (1, True)
    assert file.read_text() == "x"
    result = admin(tmp_path / "empty.sqlite", "backup", str(tmp_path / "of-nothing.gz"))
    assert (result.exit_code, "is --cluster its name?" in result.stderr) == (1, True)
    assert not (tmp_path / "of-nothing.gz").exists()


def test_incomplete_backup_is_refused_before_any_write(path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "copy.gz", tmp_path / "other.sqlite"
    admin(path, "backup", str(file))
    file.write_bytes(file.read_bytes()[:-20])
    for command in ("verify", "restore"):
        result = admin(other, command, str(file))
        assert (result.exit_code, "no whole backup" in result.stderr) == (1, True)
    assert not other.exists()
    result = admin(other, "verify", str(tmp_path / "nowhere"))
    assert (result.exit_code, "No such file" in result.stderr) == (1, True)


def test_replaced_metadata_is_kept_beside_the_file(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.gz"
    admin(path, "backup", str(file))
    result = admin(path, "restore", str(file))
    assert (result.exit_code, "--replace" in result.stderr) == (1, True)
    assert admin(path, "restore", str(file), "--replace").exit_code == 0
    [kept] = tmp_path.glob("copy.gz.replaced-*")
    assert verify_backup(kept).keys == 2


def test_a_restoration_that_was_interrupted_is_run_again_as_it_was(path: Path, tmp_path: Path) -> None:
    """What it replaces was kept the first time: of half a copy there is nothing to be kept."""
    file = tmp_path / "copy.gz"
    admin(path, "backup", str(file))

    async def half(store: MetadataStore) -> None:
        await store.put(KEYS.restoration, encode(Restoration(state=Restoration.WRITING)))

    with_store(path, half)
    assert facts(admin(path, "restore", str(file), "--replace"))["state"] == "restored"
    assert not list(tmp_path.glob("copy.gz.replaced-*"))


def test_metadata_that_was_never_restored_says_so(path: Path) -> None:
    assert facts(admin(path, "status")) == {"state": "never restored"}
    assert json.loads(admin(path, "--json", "status").stdout) == {"state": "never restored"}
    result = admin(path, "release")
    assert (result.exit_code, "was not restored" in result.stderr) == (1, True)


def test_metadata_of_a_standalone_is_released_without_bookies(path: Path) -> None:
    assert facts(admin(path, "mark-restored"))["state"] == "restored"
    assert facts(admin(path, "release"))["state"] == "released"
    assert facts(admin(path, "release"))["state"] == "released"


def test_nothing_is_compared_or_released_while_bookies_are_away(path: Path) -> None:
    async def add(store: MetadataStore) -> None:
        await store.put(KEYS.cookie("b1"), encode(BookieCookie(bookie_id="b1")))

    with_store(path, add)
    admin(path, "mark-restored")
    forget = ["forget-subscriptions", "persistent://a/b/c"]
    for command in (["reconcile"], ["release"], ["status", "--look"], forget):
        result = admin(path, *command)
        assert (result.exit_code, "not up: b1" in result.stderr) == (1, True), command
    result = admin(path, "reconcile", "--without", "b1")
    assert (result.exit_code, "no bookie is up" in result.stderr) == (1, True)
    result = admin(path, "release", "--discard")
    assert (result.exit_code, "metadata reconcile` first" in result.stderr) == (1, True)

    async def compared(store: MetadataStore) -> None:
        await store.put(KEYS.restoration, encode(Restoration(state=Restoration.RECONCILED)))

    with_store(path, compared)
    assert facts(admin(path, "release", "--discard"))["state"] == "released"


@pytest.mark.parametrize(
    ("state", "next_step"),
    [
        (Restoration.WRITING, "run `magnetar admin metadata restore` again"),
        (Restoration.RESTORED, "start all bookies, run `magnetar admin metadata reconcile`"),
        (Restoration.RECONCILED, "start brokers and discoveries"),
        (Restoration.RELEASED, ""),
    ],
)
def test_a_state_is_told_with_what_to_do_next(
    path: Path, state: Restoration.State.ValueType, next_step: str
) -> None:
    async def become(store: MetadataStore) -> None:
        await store.put(KEYS.restoration, encode(Restoration(state=state)))

    with_store(path, become)
    result = admin(path, "status")
    assert facts(result)["state"] == Restoration.State.Name(state).lower()
    assert next_step in result.stderr
    assert bool(result.stderr) == bool(next_step)


def test_so_many_ids_are_left_out_that_ledgers_are_still_found_by_theirs(path: Path, tmp_path: Path) -> None:
    result = admin(path, "mark-restored", "--skip-ids", "10000001")
    assert (result.exit_code, "1000<=x<=10000000" in result.stderr) == (2, True)


def test_a_certificate_for_bookies_is_of_no_use_without_trust(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("x")
    result = admin(path, "reconcile", "--bookie-cert", str(file))
    assert (result.exit_code, "--bookie-trust-certs" in result.stderr) == (2, True)


def test_the_state_of_half_a_copy_is_told(path: Path) -> None:
    async def half(store: MetadataStore) -> None:
        await store.put(KEYS.restoration, encode(Restoration(state=Restoration.WRITING)))

    with_store(path, half)
    assert facts(admin(path, "status"))["state"] == "writing"
    result = admin(path, "reconcile")
    assert (result.exit_code, "run" in result.stderr and "again" in result.stderr) == (1, True)

"""Why a log cannot be written to, told from what its writing path knows, and taken back by itself."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.segment_log.obstacles import STUCK_S

from tests.unit.ledger.ledger_store_contract import Heard, confirmed, create
from tests.unit.ledger.managed_ledger.harness import until
from tests.unit.ledger.test_local_store import SimulatedFixture, simulate


def why(fixture: SimulatedFixture) -> str | None:
    obstacle = fixture.store.obstacle(1)
    return None if obstacle is None else obstacle.reason


def test_a_disk_under_its_reserve_is_told_without_a_write_and_taken_back_when_it_has_space() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        disk = fixture.world.disk
        assert why(fixture) is None
        before, disk.capacity = disk.capacity, 0
        await asyncio.sleep(0.2)
        said = why(fixture)
        assert said is not None
        assert said.startswith("the disk has ")
        assert said.endswith(" in reserve")
        disk.capacity = before
        await asyncio.sleep(0.2)
        assert why(fixture) is None

    simulate(act)


def test_a_directory_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(fixture: SimulatedFixture) -> None:
        def gone() -> int:
            raise FileNotFoundError("the directory is gone")

        await asyncio.sleep(0.2)
        with monkeypatch.context() as patch:
            patch.setattr(fixture.world.disk, "free_bytes", gone)
            said = why(fixture)
        assert said == "the log's directory cannot be used: the directory is gone"

    simulate(act)


def test_a_group_that_was_lost_is_told_until_one_is_durable() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        heard = Heard()
        hit = await create(fixture, heard)  # type: ignore[arg-type]
        await asyncio.sleep(0.5)  # zero-filling is done
        disk = fixture.world.disk
        disk.faults.sync_errors = set(range(disk.operations + 1, disk.operations + 3))
        hit.append(Run([b"lost"]))
        await until(lambda: bool(heard.failed))
        assert "was not made durable" in (why(fixture) or "")
        other = await create(fixture)  # type: ignore[arg-type]
        other.append(Run([b"kept"]))
        await confirmed(other, 0)
        assert why(fixture) is None

    simulate(act)


def test_a_disk_that_does_not_answer_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(fixture: SimulatedFixture) -> None:
        writer = await create(fixture)  # type: ignore[arg-type]
        log = fixture.store.log
        with monkeypatch.context() as patch:
            patch.setattr(log.group_commit._syncer, "submit", lambda *_, **__: None)
            writer.append(Run([b"a"]))
            await asyncio.sleep(STUCK_S / 2)
            assert why(fixture) is None
            await asyncio.sleep(STUCK_S)
            assert "has not made a group of the log durable for" in (why(fixture) or "")
        log.group_commit._done(None)  # so that the log can be closed

    simulate(act)

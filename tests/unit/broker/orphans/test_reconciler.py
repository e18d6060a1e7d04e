"""Nothing is cleared at first sight, nor what an operator has to be asked about, nor when all is suspect."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.orphans import orphan as orphans
from magnetar.broker.orphans import reconciler
from magnetar.broker.orphans.config import OrphanConfig
from magnetar.broker.orphans.reconciler import Reconciler
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.values import Counter, Restoration, TopicLedger, encode
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.managed_ledger.directory import create_managed_ledgers
from magnetar.ledger.managed_ledger.topic_head import ref_value

from tests.simulation.power_loss import KEYS
from tests.unit.broker.orphans.litter import GONE, ledger, litter
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, subscribed

CONFIG = OrphanConfig(check_interval_s=100, age_min_s=50)


def of(made: Topics, config: OrphanConfig = CONFIG) -> Reconciler:
    return Reconciler(made.ledgers, made.registry, config)


def metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_an_orphan_is_cleared_when_it_was_one_at_two_looks_with_the_age_between() -> None:
    async def scenario(made: Topics) -> None:
        found = of(made)
        await litter(made, orphans.LEDGER)
        await asyncio.sleep(1_000)
        await found.look()
        assert await found.clear(asked=True) == ([], []), "one look"
        await asyncio.sleep(49)
        await found.look()
        assert await found.clear(asked=True) == ([], []), "too young"
        await asyncio.sleep(1)
        assert [each.orphan.kind for each in found.suspects] == [orphans.LEDGER]
        assert metric("magnetar_orphan_bytes", where="metadata") == 1_000
        assert metric("magnetar_orphans", kind="ledger") == 1
        before = metric("magnetar_orphans_cleared_total", kind="ledger") or 0
        cleared, failed = await found.clear(asked=True)
        assert ([each.kind for each in cleared], failed) == ([orphans.LEDGER], [])
        assert metric("magnetar_orphan_bytes", where="metadata") == 0
        assert metric("magnetar_orphans", kind="ledger") == 0
        assert metric("magnetar_orphans_cleared_total", kind="ledger") == before + 1
        assert made.keys() == set()

    in_a_broker(scenario)


def test_ledger_changed_between_scans_counts_as_first_seen() -> None:
    async def scenario(made: Topics) -> None:
        found, metadata = of(made), made.process.metadata
        key = await litter(made, orphans.PARTITIONED_TOPIC)
        await found.look()
        stored = await metadata.get(key)
        assert stored is not None
        await metadata.put(key, stored.value)
        await asyncio.sleep(60)
        await found.look()
        assert not found.is_settled(found.suspects[0])
        assert await found.clear(asked=True) == ([], [])

    in_a_broker(scenario)


def test_broker_clears_certain_orphans_automatically() -> None:
    async def scenario(made: Topics) -> None:
        await subscribed(await made.load("used"), ListeningPeer())
        before = made.keys()
        for kind in orphans.KINDS:
            if kind != orphans.TOPIC_POLICIES:
                await litter(made, kind)
        found = of(made)
        task = made.tasks.spawn(found.run(), "orphans")
        await asyncio.sleep(150)
        assert len(found.suspects) == 5
        await asyncio.sleep(150)
        # A schema may be given before its topic is there.
        assert [each.orphan.kind for each in found.suspects] == [orphans.SCHEMA]
        cleared, _ = await found.clear([orphans.LEDGER], asked=True)
        assert cleared == []
        cleared, _ = await found.clear(asked=True)
        assert [each.kind for each in cleared] == [orphans.SCHEMA]
        assert made.keys() == before
        task.cancel()

    in_a_broker(scenario)


def test_so_many_at_once_look_like_lost_metadata_and_wait_for_an_operator() -> None:
    async def scenario(made: Topics) -> None:
        refs = [await ledger(made) for _ in range(9)]
        found = of(made)
        task = made.tasks.spawn(found.run(), "orphans")
        await asyncio.sleep(350)
        assert len(found.suspects) == len(refs)
        assert found.halted is not None
        assert "lost or restored" in found.halted
        task.cancel()
        cleared, _ = await found.clear(asked=True)
        assert len(cleared) == len(refs)
        await found.look()
        assert found.halted is None

    in_a_broker(scenario)


def test_a_ledger_made_while_the_copy_was_taken_is_kept_until_restored_metadata_is_released() -> None:
    async def scenario(made: Topics) -> None:
        await subscribed(await made.load("used"), ListeningPeer())
        key, metadata = KEYS.ledger((await ledger(made)).id), made.process.metadata
        await metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RECONCILED)))
        found = of(made)
        task = made.tasks.spawn(found.run(), "orphans")
        await asyncio.sleep(350)
        assert found.is_settled(found.suspects[0])
        assert found.halted is not None
        assert "not released" in found.halted
        kept = made.keys()
        assert key in kept
        await metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RELEASED)))
        await asyncio.sleep(150)
        task.cancel()
        assert found.halted is None
        assert made.keys() == kept - {key}

    in_a_broker(scenario)


async def kept_for_an_operator(made: Topics) -> None:
    """Whatever is found at three looks of a broker is there after them."""
    before, found = made.keys(), of(made)
    task = made.tasks.spawn(found.run(), "orphans")
    await asyncio.sleep(350)
    task.cancel()
    assert found.suspects
    assert all(map(found.is_settled, found.suspects))
    assert found.halted is not None
    assert "lost or restored" in found.halted
    assert made.keys() == before


@pytest.mark.parametrize("used", [0, 20])
def test_topics_whose_namespace_was_lost_wait_for_an_operator(used: int) -> None:
    async def scenario(made: Topics) -> None:
        for number in range(used):
            await made.load(f"used-{number}")
        names = [f"{GONE.full}-{number}" for number in range(9 if used else 3)]
        await create_managed_ledgers(made.ledgers, names)
        await kept_for_an_operator(made)

    in_a_broker(scenario)


@pytest.mark.parametrize("remembered", [4, 10_000])
def test_closed_ledgers_whose_heads_were_lost_wait_for_an_operator(
    monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    """Also when there are more of them than are remembered."""

    async def scenario(made: Topics) -> None:
        monkeypatch.setattr(reconciler, "SUSPECTS_MAX", remembered)
        for _ in range(20):
            ref = await ledger(made)
            key = KEYS.topic_ledger(1, ref.id)
            await made.process.metadata.put(key, encode(TopicLedger(ref=ref_value(ref))))
        await made.process.metadata.put(KEYS.creation_id_counter, encode(Counter(next=2)))
        await kept_for_an_operator(made)

    in_a_broker(scenario)


def test_with_clearing_off_nothing_is_cleared_unasked() -> None:
    async def scenario(made: Topics) -> None:
        await litter(made, orphans.LEDGER)
        found = of(made, OrphanConfig(check_interval_s=100, age_min_s=0, clear=False))
        task = made.tasks.spawn(found.run(), "orphans")
        await asyncio.sleep(350)
        assert len(found.suspects) == 1
        assert found.halted == "magnetarOrphanClearingEnabled is off"
        task.cancel()

    in_a_broker(scenario)


def test_a_look_that_fails_is_made_again() -> None:
    async def scenario(made: Topics) -> None:
        await subscribed(await made.load("used"), ListeningPeer())
        before = made.keys()
        await litter(made, orphans.LEDGER)
        found = of(made)
        made.process.metadata.faults.unreachable = True
        with pytest.raises(MetadataError):
            await found.look()
        task = made.tasks.spawn(found.run(), "orphans")
        await asyncio.sleep(150)
        assert found.looked_ms == 0
        made.process.metadata.faults.unreachable = False
        await asyncio.sleep(300)
        assert made.keys() == before
        task.cancel()

    in_a_broker(scenario)


def test_no_more_are_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Topics) -> None:
        monkeypatch.setattr(reconciler, "SUSPECTS_MAX", 3)
        found = of(made)
        for _ in range(5):
            await ledger(made)
        await found.look()
        assert (len(found.suspects), found.truncated) == (3, True)

    in_a_broker(scenario)

"""Sweeps: recorded deletions are carried out, orphans go, and nothing that a ledger names ever does."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload.live_attempts import attempts_at
from magnetar.broker.offload.object_deletions import AT_ONCE, SILENCES_IN_A_ROW
from magnetar.broker.offload.object_scan import MISSING, OK, RUNNING, UNKNOWN
from magnetar.broker.offload.object_sweep import IDLE_SWEEPS, REST, ObjectSweep
from magnetar.broker.offload.sweep_schedule import SweepSchedule
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import Restoration, TopicHead, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import AttemptsRequest
from magnetar.ledger.cold.layout import MANIFEST_NAME, part_name
from magnetar.ledger.cold.marker import MARKER_NAME, encode_marker
from magnetar.ledger.cold.objects import open_store
from magnetar.ledger.cold.sweep import UNFINISHED_SUFFIX
from magnetar.ledger.managed_ledger.offload_ledgers import LISTED_AT_ONCE, OffloadLedgers

from tests.unit.broker.offload.stored_world import (
    GRACE_S,
    INSTANCE,
    KEYS,
    LOCATION,
    NOW_MS,
    OLD_MS,
    DictStore,
    StandingClock,
    World,
    in_world,
    path_of,
)
from tests.unit.broker.topics.simulated_broker import counted

DEFAULT = NamespaceName("public", "default")


def deletions() -> float:
    """Attempts of that namespace whose objects were deleted."""
    name = "brk_ledgeroffloader_delete_offload_ops_total"
    return counted(name, namespace=str(DEFAULT), status="succeed")


def test_orphans_go_and_what_is_named_or_young_stays(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        complete = await world.add_ledger(1, Offload.COMPLETE)
        running = await world.add_ledger(2, Offload.RUNNING)
        given_up = await world.add_ledger(3, Offload.WANTED)
        lost, young = path_of(4), path_of(5)
        store = world.store
        for path in (complete, running, given_up, lost):
            store.put_attempt(path, whole=path == complete)
        store.put_attempt(young, whole=False, modified_ms=NOW_MS)
        store.objects["notes.txt"] = 0
        report = await world.sweeping().sweep()
        assert store.attempts == {complete, running, young, ""}
        assert (report.swept, report.orphans, report.leftovers, report.failures) == (2, 0, 1, 0)

    in_world(tmp_path, body)


def test_over_restored_metadata_nothing_is_an_orphan_until_it_is_released(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        named, since = await world.add_ledger(1, Offload.COMPLETE), path_of(2)
        world.store.put_attempt(named)
        world.store.put_attempt(since, whole=False)
        held = (Restoration.WRITING, Restoration.RESTORED, Restoration.RECONCILED)
        for state in held:
            await world.metadata.put(KEYS.restoration, encode(Restoration(state=state)))
            assert (await world.sweeping().sweep()).swept == 0
            assert not (await attempts_at(world.ledgers, AttemptsRequest())).complete
        assert world.store.attempts >= {named, since}
        await world.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RELEASED)))
        assert (await world.sweeping().sweep()).swept == 1
        assert (await attempts_at(world.ledgers, AttemptsRequest())).complete
        assert since not in world.store.attempts
        assert named in world.store.attempts

    in_world(tmp_path, body)


def test_ledger_record_of_a_newer_release_keeps_its_objects(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        later: Any = 7
        kept = await world.add_ledger(1, later)
        world.store.put_attempt(kept)
        assert (await world.sweeping().sweep()).swept == 0
        assert (await attempts_at(world.ledgers, AttemptsRequest())).paths == [kept]

    in_world(tmp_path, body)


def test_recorded_deletions_are_carried_out_before_they_are_forgotten(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        gone, stuck = path_of(1), path_of(2)
        kept = await world.add_ledger(3, Offload.COMPLETE)
        store = world.store
        for path in (gone, stuck, kept):
            store.put_attempt(path, modified_ms=NOW_MS)
        done = await world.add_deletion(1, gone)
        failed = await world.add_deletion(2, stuck)
        store.broken = {path for path in store.objects if path.startswith(stuck)}
        report = await world.sweeping().sweep()
        assert store.attempts == {stuck, kept}
        assert (report.deleted, report.deletions_left, report.failures) == (1, 1, 1)
        assert await world.metadata.get(done) is None
        assert await world.metadata.get(failed) is not None
        store.broken.clear()
        report = await world.sweeping().sweep()
        assert (report.deleted, report.deletions_left) == (1, 0)
        assert store.attempts == {kept}
        assert not (await world.metadata.children(KEYS.intents_prefix)).items

    in_world(tmp_path, body)


def test_a_deletion_of_what_is_no_attempt_deletes_nothing(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        kept = await world.add_ledger(1, Offload.COMPLETE)
        world.store.put_attempt(kept)
        for ledger_id, path in ((7, ""), (8, "public"), (9, f"{kept}/..")):
            await world.add_deletion(ledger_id, path)
        report = await world.sweeping().sweep()
        assert (report.deleted, report.deletions_left) == (0, 3)
        assert world.store.attempts == {kept}

    in_world(tmp_path, body)


def test_an_attempt_that_begins_while_objects_are_listed_keeps_them(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        begun = path_of(1)
        world.store.put_attempt(begun, whole=False)
        listing = world.metadata.children

        # The first look into metadata comes before the attempt, the second one after it.
        looks = 0

        async def children(prefix: str) -> object:
            nonlocal looks
            if prefix == KEYS.namespaces_prefix():
                looks += 1
                if looks == 3:
                    await world.add_ledger(1, Offload.RUNNING)
            return await listing(prefix)

        world.metadata.children = children  # type: ignore[method-assign,assignment]
        report = await world.sweeping().sweep()
        assert looks == 3, "what is configured, what is named, and once more what is named"
        assert world.store.attempts == {begun}
        assert (report.swept, report.orphans) == (0, 0)

    in_world(tmp_path, body)


def test_a_location_of_which_metadata_knows_nothing_is_left_to_an_operator(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        world.store.put_attempt(path_of(1))
        report = await world.sweeping().sweep()
        assert (report.swept, report.orphans) == (0, 1)
        assert "another cluster" in report.doubts[LOCATION]
        assert world.store.attempts == {path_of(1)}

    in_world(tmp_path, body)


@pytest.mark.parametrize(
    ("mark", "why"),
    [(None, "owner"), (encode_marker(b"a" * 16), "another cluster's"), (b"?", "cannot be read")],
)
def test_nothing_goes_where_no_mark_says_that_it_is_this_clusters(
    tmp_path: Path, mark: bytes | None, why: str
) -> None:
    async def body(world: World) -> None:
        kept = await world.add_ledger(1, Offload.COMPLETE)
        for path, whole in ((kept, True), (path_of(2), True), (path_of(3), False)):
            world.store.put_attempt(path, whole=whole)
        world.store.mark = mark
        report = await world.sweeping().sweep()
        assert why in report.doubts[LOCATION]
        assert (report.swept, len(world.store.attempts)) == (0, 3)
        world.store.mark = encode_marker(INSTANCE)
        assert (await world.sweeping().sweep()).swept == 2

    in_world(tmp_path, body)


def test_deletions_that_fail_hide_none_of_the_others(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        stuck = {path_of(number) for number in range(1, AT_ONCE + 51)}
        for number, path in enumerate(sorted(stuck), 1):
            await world.add_deletion(number, path)
            world.store.put_attempt(path)
        world.store.broken = set(world.store.objects)
        newer = path_of(9_999)
        world.store.put_attempt(newer)
        await world.add_deletion(9_999, newer)
        report = await world.sweeping().sweep()
        assert newer not in world.store.attempts
        assert (report.deleted, report.deletions_left, report.failures) == (1, len(stuck), len(stuck))

    in_world(tmp_path, body)


def test_unresponsive_location_is_retried_and_delays_no_other(
    tmp_path: Path,
) -> None:
    async def body(world: World) -> None:
        away = world.stores["mem://away"] = DictStore("mem://away", away=True)
        for number in range(1, 50):
            await world.add_deletion(number, path_of(number), away.location)
        gone = path_of(77)
        world.store.put_attempt(gone)
        await world.add_deletion(77, gone)
        report = await world.sweeping().sweep()
        assert not world.store.objects
        assert (report.deleted, report.deletions_left) == (1, 49)
        assert away.asked == SILENCES_IN_A_ROW + 1, "the last time to list what nobody names"

    in_world(tmp_path, body)


def test_next_leader_sweeps_failed_attempts_at_unused_locations(
    tmp_path: Path,
) -> None:
    async def body(world: World) -> None:
        elsewhere = world.stores["mem://elsewhere"] = DictStore("mem://elsewhere")
        failed = await world.add_ledger(1, Offload.RUNNING, elsewhere.location)
        elsewhere.put_attempt(failed, whole=False)
        assert (await world.sweeping().sweep()).swept == 0
        await world.add_ledger(1, Offload.WANTED, LOCATION)
        assert (await world.sweeping().sweep()).swept == 1
        assert not elsewhere.objects
        key = KEYS.offload_location(elsewhere.location)
        assert await world.metadata.get(key) is not None
        elsewhere.mark = None
        assert (await world.sweeping().sweep()).swept == 0
        assert await world.metadata.get(key) is not None, "perhaps the directory is not mounted"
        elsewhere.mark = encode_marker(INSTANCE)
        assert (await world.sweeping().sweep()).swept == 0
        assert await world.metadata.get(key) is None, "nothing lies there any more"
        asked = elsewhere.asked
        await world.sweeping().sweep()
        assert elsewhere.asked == asked

    in_world(tmp_path, body)


def test_a_place_that_cannot_be_reached_is_not_forgotten(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        elsewhere = world.stores["mem://elsewhere"] = DictStore("mem://elsewhere")
        await world.add_ledger(1, Offload.RUNNING, elsewhere.location)
        elsewhere.away = True
        await world.sweeping().sweep()
        await world.add_ledger(1, Offload.WANTED, LOCATION)
        report = await world.sweeping().sweep()
        assert report.failures == 1
        assert await world.metadata.get(KEYS.offload_location(elsewhere.location)) is not None

    in_world(tmp_path, body)


def test_others_have_most_of_the_time_while_topics_are_gone_through(tmp_path: Path) -> None:
    """Their clock says that each read takes a while; this one says how long others had."""
    read_s = 0.01

    class SlowReads(StandingClock):
        reads = 0

        def monotonic(self) -> float:
            self.reads += 1
            return self.reads * read_s

    async def body(world: World) -> None:
        for number in range(10 * LISTED_AT_ONCE):
            topic = TopicName.parse(f"idle-{number}")
            await world.metadata.put(KEYS.topic_head(topic), encode(TopicHead(creation_id=number + 100)))
        clock = SlowReads()
        ledgers = OffloadLedgers(world.metadata, KEYS, clock)
        begun_s = time.monotonic()
        await ObjectSweep(
            world.metadata, KEYS, ledgers, world.config.offload, world.config.cluster_name, world.open_store
        ).sweep()
        assert clock.reads == 2 * 10
        assert time.monotonic() - begun_s >= 10 * read_s * REST

    in_world(tmp_path, body)


def test_topics_are_gone_through_twice_however_many_locations_there_are(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for number in range(5):
            store = world.stores[f"mem://{number}"] = DictStore(f"mem://{number}")
            await world.add_ledger(number + 1, Offload.RUNNING, store.location)
            store.put_attempt(path_of(100 + number), whole=False)
        listing, passes = world.metadata.children, 0

        async def children(prefix: str) -> object:
            nonlocal passes
            passes += "/topic-heads/" in prefix
            return await listing(prefix)

        world.metadata.children = children  # type: ignore[method-assign,assignment]
        assert (await world.sweeping().sweep()).swept == 5
        assert passes == 2

    in_world(tmp_path, body)


def test_one_location_that_cannot_be_reached_keeps_none_of_the_others(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.add_ledger(1, Offload.COMPLETE, "away://cold")
        world.store.put_attempt(path_of(2), whole=False)
        report = await world.sweeping().sweep()
        assert (report.swept, report.failures) == (1, 1)

    in_world(tmp_path, body)


def test_nothing_is_swept_while_a_topic_cannot_be_read(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.add_ledger(1, Offload.COMPLETE)
        await world.metadata.put(KEYS.topic_ledger(1, 2), b"\xff")
        world.store.put_attempt(path_of(3), whole=False)
        report = await world.sweeping().sweep()
        assert (report.swept, world.store.attempts) == (0, {path_of(3)})
        assert "sweep again" in report.doubts[LOCATION]

    in_world(tmp_path, body)


def test_figures_say_what_a_sweep_left_and_an_orphan_that_stays_is_one(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.add_ledger(1, Offload.COMPLETE)
        lost = path_of(2)
        world.store.put_attempt(lost, whole=False)
        world.store.broken = set(world.store.objects)
        swept = SweepSchedule(
            world.metadata,
            KEYS,
            world.ledgers,
            world.config.offload,
            world.config.cluster_name,
            lambda: True,
            world.open_store,
        )
        deleted = counted(
            "brk_ledgeroffloader_delete_offload_ops_total", namespace=str(DEFAULT), status="succeed"
        )
        await swept.sweep()
        assert counted("magnetar_offload_orphans") == 1
        assert counted("magnetar_offload_last_sweep_timestamp_seconds") == NOW_MS / 1000
        world.store.broken.clear()
        await swept.sweep()
        assert counted("magnetar_offload_orphans") == 0
        assert not world.store.objects
        assert deletions() == deleted + 1

    in_world(tmp_path, body)


def test_a_scan_compares_what_ledgers_name_with_what_lies_there(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        states = ((1, Offload.COMPLETE), (2, Offload.COMPLETE), (3, Offload.RUNNING), (4, Offload.WANTED))
        for ledger_id, state in states:
            path = await world.add_ledger(ledger_id, state)
            if ledger_id != 2:
                world.store.put_attempt(path, whole=ledger_id == 1)
        await world.add_ledger(5, Offload.COMPLETE, "away://cold")
        scan = await world.sweeping().scan(DEFAULT)
        assert {each.ledger_id: each.status for each in scan.attempts} == {
            1: OK,
            2: MISSING,
            3: RUNNING,
            4: UNKNOWN,
            5: MISSING,
        }
        first = scan.attempts[0]
        assert (first.topic, first.objects, first.byte_length, first.newest_ms) == (
            "persistent://public/default/orders",
            2,
            20,
            OLD_MS,
        )
        assert len(scan.errors) == 1
        assert "away://cold" in scan.errors[0]
        assert not (await world.sweeping().scan(NamespaceName("public", "other"))).attempts

    in_world(tmp_path, body)


def test_a_cluster_that_offloads_nowhere_opens_no_store(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        world.config = BrokerConfig(offload=OffloadConfig(grace_s=GRACE_S))
        world.stores.clear()
        looks: list[str] = []
        listing = world.metadata.children

        async def children(prefix: str) -> object:
            looks.append(prefix)
            return await listing(prefix)

        world.metadata.children = children  # type: ignore[method-assign,assignment]
        sweeping = world.sweeping()
        for _ in range(IDLE_SWEEPS):
            report = await sweeping.sweep()
            assert (report.failures, report.swept) == (0, 0)
        heads = [prefix for prefix in looks if "/topic-heads/" in prefix]
        assert len(heads) == 1, "its topics are gone through once a day"
        path = await world.add_ledger(1, Offload.COMPLETE)
        world.stores[LOCATION] = DictStore(LOCATION)
        world.store.put_attempt(path)
        world.store.put_attempt(path_of(2), whole=False)
        assert (await sweeping.sweep()).swept == 1

    in_world(tmp_path, body)


def test_only_the_broker_that_leads_sweeps_and_a_failure_does_not_end_it(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        world.store.put_attempt(path_of(1), whole=False)
        leads = False
        config = BrokerConfig(offload=replace(world.config.offload, sweep_interval_s=0))
        sweep = SweepSchedule(
            world.metadata,
            KEYS,
            world.ledgers,
            config.offload,
            config.cluster_name,
            lambda: leads,
            world.open_store,
        )
        listing, failures = world.metadata.children, [MetadataError("etcd is away"), ValueError("a bug")]

        async def children(prefix: str) -> object:
            if failures:
                raise failures.pop()
            return await listing(prefix)

        world.metadata.children = children  # type: ignore[method-assign,assignment]
        failed = counted("magnetar_offload_sweep_failures_total")
        running = asyncio.create_task(sweep.run())
        try:
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(failures) == 2, "another broker leads: this one does not even look"
            assert world.store.objects
            leads = True
            for _ in range(3_000):
                if not world.store.objects:
                    break
                await asyncio.sleep(0.01)
            assert not world.store.objects
        finally:
            running.cancel()
        assert counted("magnetar_offload_sweep_failures_total") == failed + 2

    in_world(tmp_path, body)


def test_files_are_swept_with_their_directories_and_cut_off_writes(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        place = tmp_path / "cold"
        location = f"file://{place}"
        kept = await world.add_ledger(1, Offload.COMPLETE, location)
        lost, young = path_of(2), path_of(3)
        for path in (kept, lost, young):
            (place / path).mkdir(parents=True)
            for name in (part_name(0), f".{part_name(1)}.1-2{UNFINISHED_SUFFIX}"):
                (place / path / name).write_bytes(b"x")
        (place / kept / MANIFEST_NAME).write_bytes(b"{}")
        (place / MARKER_NAME).write_bytes(encode_marker(INSTANCE))
        now_s = NOW_MS / 1000
        for each in place.rglob("*.*"):
            os.utime(each, (now_s - GRACE_S, now_s - GRACE_S))
        os.utime(place / young / part_name(0), (now_s, now_s))
        config = BrokerConfig(offload=replace(world.config.offload, location=location))
        sweeping = ObjectSweep(
            world.metadata, KEYS, world.ledgers, config.offload, config.cluster_name, open_store
        )
        report = await sweeping.sweep()
        assert (report.swept, report.leftovers, report.failures) == (1, 1, 0)
        assert not (place / lost).parent.exists()
        assert {each.name for each in (place / kept).iterdir()} == {part_name(0), MANIFEST_NAME}
        assert len(list((place / young).iterdir())) == 2
        scan = await sweeping.scan(DEFAULT)
        assert {each.ledger_id: (each.status, each.objects) for each in scan.attempts} == {
            1: (OK, 2),
            3: (UNKNOWN, 2),
        }

    in_world(tmp_path, body)

"""A mirror ends up as metadata is, whatever became of its watches; what is newer wins."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from magnetar.common.cluster.mirror import RECONCILE_S, Mirror
from magnetar.common.errors import DataCorruption
from magnetar.common.metadata.store import Put
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.common.cluster.simulated import simulate, told


@dataclass(frozen=True)
class Text:
    text: str
    version: int


def read(data: bytes, version: int) -> Text:
    if data == b"bad":
        raise DataCorruption("bad")
    return Text(data.decode(), version)


def key_of(key: str) -> str:
    name = key.removeprefix("/m/")
    if name.startswith("?"):
        raise ValueError("no such key")
    return name


def mirror_of(store: SimMetadataStore) -> Mirror[str, Text]:
    return Mirror(store, "/m/", "things", key_of, read)


def texts(mirror: Mirror[str, Text]) -> dict[str, str]:
    return {key: value.text for key, value in mirror.items.items()}


def test_mirror_has_initial_and_later_keys() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await store.put("/m/a", b"1")
        await store.put("/other", b"1")
        mirror = mirror_of(store)
        seen: list[tuple[str, str | None]] = []
        mirror.on_change(lambda key, value: seen.append((key, None if value is None else value.text)))
        await mirror.start()
        assert texts(mirror) == {"a": "1"}
        await store.put("/m/b", b"2")
        await store.put("/m/a", b"3")
        await store.delete("/m/b")
        await told()
        assert texts(mirror) == {"a": "3"}
        assert seen == [("a", "1"), ("b", "2"), ("a", "3"), ("b", None)]
        await mirror.close()
        await mirror.close()
        await store.put("/m/a", b"4")
        await told()
        assert texts(mirror) == {"a": "3"}

    simulate(scenario)


def test_a_lost_watch_costs_nothing_but_a_new_list_and_only_differences_are_told() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        for name in ("stays", "changes", "goes"):
            await store.put(f"/m/{name}", b"1")
        mirror = mirror_of(store)
        await mirror.start()
        seen: list[str] = []
        mirror.on_change(lambda key, _: seen.append(key))
        store.lose_watches()
        await store.put("/m/changes", b"2")
        await store.delete("/m/goes")
        await store.put("/m/comes", b"1")
        await asyncio.sleep(1)
        assert texts(mirror) == {"stays": "1", "changes": "2", "comes": "1"}
        assert sorted(seen) == ["changes", "comes", "goes"]
        await store.put("/m/stays", b"2")
        await told()
        assert mirror.items["stays"].text == "2"
        await mirror.close()

    simulate(scenario)


def test_a_mirror_that_falls_behind_its_watch_lists_anew() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        mirror = mirror_of(store)
        await mirror.start()
        for number in range(100):
            server.commit([Put(f"/m/{number}", str(number).encode())])
        await asyncio.sleep(1)
        assert texts(mirror) == {str(number): str(number) for number in range(100)}
        await mirror.close()

    simulate(scenario, watch_events_max=5)


def test_a_start_waits_for_metadata_and_what_is_known_stays_while_it_is_away() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await store.put("/m/a", b"1")
        mirror = mirror_of(store)
        store.faults.unreachable = True
        starting = asyncio.create_task(mirror.start())
        await asyncio.sleep(3)
        assert not starting.done()
        store.faults.unreachable = False
        await starting
        store.faults.unreachable = True
        store.lose_watches()
        await asyncio.sleep(30)
        assert texts(mirror) == {"a": "1"}
        await mirror.close()

    simulate(scenario)


def test_own_writes_count_at_once_and_what_is_older_never_replaces_what_is_newer() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        mirror = mirror_of(store)
        await mirror.start()
        version = await store.put("/m/a", b"1")
        mirror.note("a", Text("1", version))
        newer = await store.put("/m/a", b"2")
        mirror.note("a", Text("2", newer))
        mirror.note("a", Text("1", version))
        assert texts(mirror) == {"a": "2"}
        mirror.note_removed("a", version)
        assert texts(mirror) == {"a": "2"}
        await told()
        assert texts(mirror) == {"a": "2"}
        mirror.note_removed("a", newer)
        assert texts(mirror) == {}
        await mirror.close()

    simulate(scenario)


def test_an_answer_that_was_overtaken_by_the_watch_does_not_bring_back_what_is_gone() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        mirror = mirror_of(store)
        await mirror.start()
        version = await store.put("/m/a", b"1")
        await store.delete("/m/a")
        await told()
        mirror.note("a", Text("1", version))
        assert texts(mirror) == {}
        await mirror.close()

    simulate(scenario)


def test_undecodable_value_counts_as_missing() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await store.put("/m/a", b"bad")
        await store.put("/m/?", b"1")
        await store.put("/m/b", b"1")
        mirror = mirror_of(store)
        await mirror.start()
        assert texts(mirror) == {"b": "1"}
        await store.put("/m/b", b"bad")
        await told()
        assert texts(mirror) == {}
        await mirror.close()

    simulate(scenario)


def test_other_work_goes_on_while_very_many_keys_are_read_and_what_is_written_meanwhile_counts() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        for number in range(2_000):
            server.commit([Put(f"/m/{number:04}", b"1")])
        mirror, turns, begun = mirror_of(store), 0, asyncio.Event()
        mirror.on_change(lambda key, value: begun.set())
        starting = asyncio.create_task(mirror.start())
        await begun.wait()
        version = server.commit([Put("/m/1999", b"2")])
        mirror.note("1999", Text("2", version))
        mirror.note("none", Text("an answer from before the listing", 5))
        while not starting.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert len(mirror.items) == 2_000
        assert mirror.items["1999"].text == "2"
        await mirror.close()

    simulate(scenario)


def test_failing_listener_delays_no_other() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        mirror = mirror_of(store)
        seen: list[str] = []

        def fails(key: str, value: Text | None) -> None:
            raise RuntimeError("no")

        mirror.on_change(fails)
        mirror.on_change(lambda key, value: seen.append(key))
        await mirror.start()
        await store.put("/m/a", b"1")
        await store.put("/m/b", b"1")
        await told()
        assert seen == ["a", "b"]
        await mirror.close()

    simulate(scenario)


def test_everything_is_listed_anew_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        mirror = mirror_of(store)
        await mirror.start()
        monkeypatch.setattr(store, "_deliver_event", store._in_flight.popleft)
        await asyncio.sleep(RECONCILE_S / 2)
        await store.put("/m/a", b"1")
        await asyncio.sleep(RECONCILE_S / 4)
        assert texts(mirror) == {}
        await asyncio.sleep(RECONCILE_S / 2)
        assert texts(mirror) == {"a": "1"}
        await mirror.close()

    simulate(scenario)


def test_metadata_that_was_restored_from_a_backup_is_what_counts() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await store.put("/m/stays", b"1")
        backup = server.fork()
        await store.put("/m/stays", b"2")
        for name in ("goes", "comes back"):
            await store.put(f"/m/{name}", b"2")
        mirror = mirror_of(store)
        await mirror.start()
        seen: list[str] = []
        mirror.on_change(lambda key, _: seen.append(key))
        server.restore(backup)
        store.lose_watches()
        await asyncio.sleep(1)
        assert texts(mirror) == {"stays": "1"}
        assert set(seen) == {"stays", "goes", "comes back"}
        await store.put("/m/comes back", b"3")
        await told()
        assert texts(mirror) == {"stays": "1", "comes back": "3"}
        await mirror.close()

    simulate(scenario)


def test_so_it_is_when_metadata_has_gone_on_for_longer_than_it_had_before() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        await store.put("/m/a", b"restored")
        backup = server.fork()
        await store.put("/m/a", b"lost")
        mirror = mirror_of(store)
        await mirror.start()
        server.restore(backup)
        for number in range(10):
            server.commit([Put("/other", str(number).encode())])
        store.lose_watches()
        await asyncio.sleep(1)
        assert texts(mirror) == {"a": "restored"}
        await mirror.close()

    simulate(scenario)


def test_a_store_that_is_closed_ends_the_following() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        mirror = mirror_of(store)
        await mirror.start()
        await store.close()
        await told()
        assert mirror._task is not None
        assert mirror._task.done()
        await mirror.close()

    simulate(scenario)

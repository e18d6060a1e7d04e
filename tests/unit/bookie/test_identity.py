"""A data directory and the cookie in metadata: neither works without the other."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
from magnetar.bookie.identity import (
    BOOKIE_COOKIE,
    Identity,
    IdentityTaken,
    decode_identity,
    encode_identity,
    require_latest_start,
)
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.metadata.values import BookieCookie, Restoration, decode, encode
from magnetar.common.runtime.disk import replace_file
from magnetar.ledger.bookie_protocol.bookie_pb2 import LOG_FAILED, OK
from magnetar.ledger.data_directory import WrongDataDirectory
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimCrash

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.core_harness import A, Bench, on_a_bookie

IDENTITY = Identity("bookie-1:3181", b"instance", bytes(range(16)), 7)


def test_an_identity_survives_its_file() -> None:
    assert decode_identity(encode_identity(IDENTITY)) == IDENTITY


@pytest.mark.parametrize("at", range(len(encode_identity(IDENTITY))))
def test_no_damaged_cookie_is_believed(at: int) -> None:
    data = bytearray(encode_identity(IDENTITY))
    data[at] ^= 1
    with pytest.raises((DataCorruption, UnsupportedFormat)):
        decode_identity(bytes(data))


def refused(
    prepare: Callable[[Bench], Awaitable[None]], reason: str, *, accept_empty_directory: bool = False
) -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"one"])
        await bench.core.close()
        await prepare(bench)
        with pytest.raises(WrongDataDirectory, match=reason):
            await bench.open(accept_empty_directory=accept_empty_directory)

    on_a_bookie(act)


def test_an_empty_directory_of_a_bookie_that_had_data_is_refused() -> None:
    async def prepare(bench: Bench) -> None:
        bench.disk = SimDisk()

    refused(prepare, "magnetarBookieAcceptEmptyDirectory")


def test_a_directory_of_another_bookie_is_refused() -> None:
    async def prepare(bench: Bench) -> None:
        bench.bookie_id = "bookie-2"

    refused(prepare, "belongs to bookie 'bookie-1'")


def test_a_directory_of_another_instance_is_refused() -> None:
    async def prepare(bench: Bench) -> None:
        bench.instance_id = b"another"

    refused(prepare, "belongs to instance")


def test_data_without_its_cookie_is_refused() -> None:
    async def prepare(bench: Bench) -> None:
        bench.disk.unlink(BOOKIE_COOKIE)

    refused(prepare, "not copied as a whole", accept_empty_directory=True)


def test_a_cookie_that_the_disk_cannot_read_stops_the_start_and_says_what_to_do() -> None:
    async def act(bench: Bench) -> None:
        bench.disk.spoil(BOOKIE_COOKIE, 0)
        with pytest.raises(DataCorruption, match=f"cannot read {BOOKIE_COOKIE} .*AcceptEmptyDirectory=true"):
            await bench.restart("close")

    on_a_bookie(act)


def test_data_of_a_decommissioned_bookie_is_refused() -> None:
    async def prepare(bench: Bench) -> None:
        await bench.metadata.delete(KEYS.cookie(bench.bookie_id))

    refused(prepare, "decommissioned", accept_empty_directory=True)


def test_another_directory_with_data_of_the_same_bookie_is_refused() -> None:
    async def prepare(bench: Bench) -> None:
        other = Bench(bench.loop)
        await other.open()
        await other.appended(A, 0, [b"other"])
        await other.core.close()
        bench.disk = other.disk

    refused(prepare, "in another directory", accept_empty_directory=True)


def test_a_start_that_was_cut_short_at_any_step_is_completed_by_the_next() -> None:
    async def act(bench: Bench) -> None:
        for step in range(1, 100):
            fresh = Bench(bench.loop, bookie_id=f"bookie-{step}")
            fresh.disk.faults.crash_at = step
            try:
                await fresh.open()
            except SimCrash:
                pass
            else:
                assert step > 8, "there are so many steps"
                return
            fresh.disk = fresh.disk.crash(random.Random(seed))
            await fresh.open()
            assert (await fresh.appended(A, 0, [b"one"])).code == OK
            await fresh.core.close()

    for seed in range(3):
        on_a_bookie(act, seed)


def test_an_accepted_empty_directory_is_in_doubt_about_everything_that_is_not_closed() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"one"])
        await bench.core.close()
        bench.disk = SimDisk()
        await bench.open(accept_empty_directory=True)
        state = await bench.state(A)
        assert (state.limbo, state.fenced) == (True, True)
        assert (await bench.appended(A, 1, [b"two"])).code == LOG_FAILED
        await bench.restart("close")  # accepted once: it is the bookie's directory now
        assert (await bench.state(A)).limbo

    on_a_bookie(act)


def test_a_directory_restored_from_a_copy_is_in_doubt() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.restart("close")
        copy = bench.disk.kill()
        await bench.core.close()
        await bench.restart("kill")
        await bench.appended(A, 0, [b"one"])
        await bench.core.close()
        bench.disk = copy
        await bench.open()
        assert (await bench.state(A)).limbo
        found = await bench.metadata.get(KEYS.cookie(bench.bookie_id))
        assert found is not None
        assert decode(BookieCookie, found.value).generation == 4

    on_a_bookie(act)


def test_an_older_cookie_beside_the_newest_log_is_in_doubt() -> None:
    """The log's end tells nothing here: only the generation does."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        older = bench.disk.content(BOOKIE_COOKIE)
        await bench.appended(A, 0, [b"one"])
        await bench.restart("close")
        await bench.core.close()
        replace_file(bench.disk, BOOKIE_COOKIE, older)
        await bench.open()
        assert (await bench.state(A)).limbo

    on_a_bookie(act)


def test_clean_and_unclean_stops_are_no_reason_for_doubt() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"one"])
        for outage in ("close", "kill", "close", "kill"):
            await bench.restart(outage)
            assert not (await bench.state(A)).limbo

    on_a_bookie(act)


def test_restored_metadata_that_does_not_know_a_bookie_takes_it_in_until_it_is_released() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"one"])
        await bench.core.close()
        await bench.metadata.delete(KEYS.cookie(bench.bookie_id))
        await bench.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RELEASED)))
        with pytest.raises(WrongDataDirectory, match="decommissioned"):
            await bench.open()
        await bench.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RESTORED)))
        await bench.open()
        found = await bench.metadata.get(KEYS.cookie(bench.bookie_id))
        assert found is not None
        identity = decode_identity(read_cookie(bench))
        cookie = decode(BookieCookie, found.value)
        assert (cookie.directory_id, cookie.generation) == (identity.directory_id, identity.generation)

    on_a_bookie(act)


def test_a_disk_replaced_after_the_copy_that_was_restored_is_taken_in_and_in_doubt() -> None:
    """The copy believes on it what was on the old disk, which stays out of it."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"one"])
        await bench.core.close()
        old, copied = bench.disk, await bench.metadata.get(KEYS.cookie(bench.bookie_id))
        assert copied is not None
        bench.disk = SimDisk()
        await bench.open(accept_empty_directory=True)
        await bench.clear_limbo(A)
        assert not (await bench.state(A)).limbo
        await bench.core.close()
        new = bench.disk
        now = await bench.metadata.get(KEYS.cookie(bench.bookie_id))
        assert now is not None
        restored, released = Restoration(state=Restoration.RESTORED), Restoration(state=Restoration.RELEASED)
        for disk, cookie, restoration in (
            (new, copied.value, released),
            (old, now.value, restored),
            (old, now.value, released),
        ):
            bench.disk = disk
            await bench.metadata.put(KEYS.cookie(bench.bookie_id), cookie)
            await bench.metadata.put(KEYS.restoration, encode(restoration))
            with pytest.raises(WrongDataDirectory, match="in another directory"):
                await bench.open()
        bench.disk = new
        await bench.metadata.put(KEYS.cookie(bench.bookie_id), copied.value)
        await bench.metadata.put(KEYS.restoration, encode(restored))
        await bench.open()
        assert (await bench.state(A)).limbo
        found = await bench.metadata.get(KEYS.cookie(bench.bookie_id))
        assert found is not None
        assert (
            decode(BookieCookie, found.value).directory_id == decode_identity(read_cookie(bench)).directory_id
        )

    on_a_bookie(act)


def read_cookie(bench: Bench) -> bytes:
    file = bench.disk.open(BOOKIE_COOKIE, writable=False)
    try:
        return file.pread(1 << 16, 0)
    finally:
        file.close()


def test_a_start_on_another_disk_takes_the_identity_from_the_process_before() -> None:
    async def act(bench: Bench) -> None:
        before = bench.core.identity
        await require_latest_start(bench.metadata, KEYS, before)
        await bench.core.close()
        bench.disk = SimDisk()
        after = (await bench.open(accept_empty_directory=True)).identity
        assert after.bookie_id == before.bookie_id
        assert after.directory_id != before.directory_id, "another disk is another directory"
        await require_latest_start(bench.metadata, KEYS, after)
        with pytest.raises(IdentityTaken, match="has started as bookie bookie-1 since"):
            await require_latest_start(bench.metadata, KEYS, before)
        await bench.metadata.delete(KEYS.cookie(bench.bookie_id))
        await require_latest_start(bench.metadata, KEYS, before)  # decommissioned: for its operator to stop

    on_a_bookie(act)


def test_the_identity_stays_over_restarts() -> None:
    async def act(bench: Bench) -> None:
        before = bench.core.identity
        after = (await bench.restart("kill")).identity
        assert (after.directory_id, after.generation) == (before.directory_id, before.generation + 1)
        assert after == decode_identity(read_cookie(bench))

    on_a_bookie(act)

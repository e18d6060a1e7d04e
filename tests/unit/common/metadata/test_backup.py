"""Metadata copied and put back: everything that lasts, nothing of sessions, ids above all that was given."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.common.errors import MagnetarError, MetadataError, UnknownOutcome
from magnetar.common.metadata.backup import NotRestorable, Restorer, read_all
from magnetar.common.metadata.backup_file import BackupHeader
from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import (
    holds_deletion,
    read_restoration,
    require_reconciled,
    require_whole,
)
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import MetadataStore, Op, Put
from magnetar.common.metadata.values import (
    BrokerRegistration,
    Counter,
    LedgerMetadata,
    Restoration,
    Tenant,
    decode,
    encode,
)
from magnetar.common.runtime.clock import SystemClock

KEYS = Keys("eu")
OTHER = Keys("us")
SKIP = 1_000
COMMITS = 5
"""That putting the copy of these tests back takes: its begin, three batches, its end."""

Act = Callable[[SqliteMetadataStore, SqliteMetadataStore], Awaitable[None]]


def with_stores(tmp_path: Path, act: Act) -> None:
    """`act` with the store of a cluster, filled, and an empty one."""

    async def run() -> None:
        one = await SqliteMetadataStore.open(tmp_path / "one.sqlite")
        other = await SqliteMetadataStore.open(tmp_path / "other.sqlite")
        try:
            await ensure_instance_id(one, KEYS, SystemClock(), random.Random(1))
            await one.put(KEYS.tenant("acme"), encode(Tenant(admin_roles=["ops"])))
            await one.put(KEYS.tenant("a%b/ü"), encode(Tenant()))
            for first in range(1, 251, 50):
                ledgers = range(first, first + 50)
                await one.commit([Put(KEYS.ledger(number), encode(ledger(number))) for number in ledgers])
            await one.put(KEYS.ledger_id_counter, encode(Counter(next=251)))
            await one.put(KEYS.creation_id_counter, encode(Counter(next=7)))
            await one.put(KEYS.producer_name_counter, encode(Counter(next=3)))
            await one.put(OTHER.tenant("theirs"), encode(Tenant()))
            await act(one, other)
        finally:
            await one.close()
            await other.close()

    asyncio.run(run())


def ledger(number: int) -> LedgerMetadata:
    value = LedgerMetadata(state=LedgerMetadata.CLOSED, last_entry_id=number, properties={"x": "y" * 4000})
    value.ref.id, value.ref.key = number, number * 3
    return value


async def copy(store: MetadataStore) -> tuple[BackupHeader, list[tuple[str, bytes]]]:
    return await read_all(store, KEYS, SystemClock(), "1.0")


async def everything(store: MetadataStore, keys: Keys = KEYS) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.children(keys.root)).items}


def restorer(store: MetadataStore) -> Restorer:
    return Restorer(store, KEYS, SystemClock(), random.Random(2), ids_skipped=SKIP)


async def counter(store: MetadataStore, key: str) -> int:
    found = await store.get(key)
    assert found is not None
    return decode(Counter, found.value).next


def test_persistent_keys_are_restored_unchanged(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        assert header.cluster == "eu"
        record = await restorer(other).restore(header, items)
        before, after = await everything(one), await everything(other)
        counters = {key for key in before if key.startswith(KEYS.counters_prefix)}
        assert {**before, KEYS.restoration: encode(record)}.keys() == after.keys()
        assert all(after[key] == value for key, value in before.items() if key not in counters)
        assert not await everything(other, OTHER), "another cluster in the same store is no part of it"

    with_stores(tmp_path, act)


def test_ids_go_on_far_above_and_the_record_names_those_between(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        record = await restorer(other).restore(*await copy(one))
        assert (record.lost_from, record.lost_until) == (251, 251 + SKIP)
        assert await counter(other, KEYS.ledger_id_counter) == 251 + SKIP
        assert await counter(other, KEYS.creation_id_counter) == 7 + SKIP
        assert await counter(other, KEYS.producer_name_counter) == 3 + SKIP

    with_stores(tmp_path, act)


def test_a_counter_that_is_behind_its_ledgers_is_not_believed(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        await one.put(KEYS.ledger_id_counter, encode(Counter(next=10)))
        record = await restorer(other).restore(*await copy(one))
        assert record.lost_from == 251

    with_stores(tmp_path, act)


def test_ephemeral_keys_are_not_backed_up(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        session = await one.session(10_000)
        for key in (KEYS.broker("b:8080"), KEYS.broker_leader, KEYS.auditor, KEYS.bookie("b1")):
            await session.put_ephemeral(key, encode(BrokerRegistration()))
        _, items = await copy(one)
        assert not [key for key, _ in items if "available" in key or "leader" in key or "auditor" in key]
        assert "tenants/acme" in dict(items)

    with_stores(tmp_path, act)


def test_restoration_is_refused_with_registered_processes(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        session = await other.session(10_000)
        await session.put_ephemeral(KEYS.bookie("b1"), b"x")
        with pytest.raises(NotRestorable, match=r"registered \(bookies/available/b1\)"):
            await restorer(other).restore(*await copy(one))
        assert (await everything(other)).keys() == {KEYS.bookie("b1")}

    with_stores(tmp_path, act)


def test_existing_metadata_is_replaced_only_on_request(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        await one.put(KEYS.tenant("late"), encode(Tenant()))
        await one.put(KEYS.ledger_id_counter, encode(Counter(next=900)))
        with pytest.raises(NotRestorable, match="--replace"):
            await restorer(one).restore(header, items)
        assert KEYS.tenant("late") in await everything(one)
        record = await restorer(one).restore(header, items, replace=True)
        after = await everything(one)
        assert KEYS.tenant("late") not in after
        assert record.lost_from == 251, "by the copy"
        assert record.lost_until == 900 + SKIP, "above what the replaced metadata gave"
        assert OTHER.tenant("theirs") in await everything(one, OTHER)

    with_stores(tmp_path, act)


def test_leftover_keys_of_processes_do_not_prevent_restoration(tmp_path: Path) -> None:
    """Whoever starts before the copy is back makes an id of the instance, and brokers count."""

    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        made = await ensure_instance_id(other, KEYS, SystemClock(), random.Random(9))
        await other.put(KEYS.producer_name_counter, encode(Counter(next=9)))
        await restorer(other).restore(header, items)
        again = await ensure_instance_id(other, KEYS, SystemClock(), random.Random(9))
        assert again.hex() == header.instance_id != made.hex()
        assert await counter(other, KEYS.producer_name_counter) == 9 + SKIP

    with_stores(tmp_path, act)


def test_ledgers_of_another_instance_are_not_replaced(tmp_path: Path) -> None:
    """The same name, and not the same cluster: the file was the wrong one."""

    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        await ensure_instance_id(other, KEYS, SystemClock(), random.Random(9))
        await other.put(KEYS.ledger(1), encode(ledger(1)))
        before = await everything(other)
        with pytest.raises(NotRestorable, match="another cluster of that name"):
            await restorer(other).restore(*await copy(one), replace=True)
        assert await everything(other) == before

    with_stores(tmp_path, act)


class Joined:
    """A store in which a broker registers while the copy is put back: it had looked before that began."""

    def __init__(self, store: SqliteMetadataStore, at: int) -> None:
        self._store = store
        self._left = at
        self.get, self.children = store.get, store.children

    async def commit(self, ops: Sequence[Op]) -> int:
        self._left -= 1
        if self._left == 0:
            await self._store.put(KEYS.broker("b:8080"), encode(BrokerRegistration()))
        return await self._store.commit(ops)


@pytest.mark.parametrize("at", range(1, COMMITS))
def test_registration_during_restoration_is_detected(tmp_path: Path, at: int) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        with pytest.raises(NotRestorable, match=r"\(brokers/available/b%3A8080\).*run this again"):
            await restorer(Joined(other, at)).restore(header, items)  # type: ignore[arg-type]
        with pytest.raises(MetadataError, match="run it again"):
            await require_whole(other, KEYS)
        await other.delete(KEYS.broker("b:8080"))
        await restorer(other).restore(header, items)

    with_stores(tmp_path, act)


def test_a_copy_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        elsewhere = Restorer(other, OTHER, SystemClock(), random.Random(2))
        with pytest.raises(NotRestorable, match="of cluster 'eu'"):
            await elsewhere.restore(header, items)

    with_stores(tmp_path, act)


def test_there_is_no_copy_of_nothing(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        with pytest.raises(NotRestorable, match="no metadata of a cluster"):
            await copy(other)
        with pytest.raises(NotRestorable, match="no metadata of a cluster"):
            await restorer(other).mark()

    with_stores(tmp_path, act)


def test_metadata_that_came_back_by_other_means_is_marked(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        before = await everything(one)
        record = await restorer(one).mark()
        assert (record.state, record.lost_from, record.lost_until) == (Restoration.RESTORED, 251, 251 + SKIP)
        after = await everything(one)
        changed = {key for key in after if after[key] != before.get(key)}
        assert changed == {
            KEYS.restoration,
            KEYS.ledger_id_counter,
            KEYS.creation_id_counter,
            KEYS.producer_name_counter,
        }

    with_stores(tmp_path, act)


@pytest.mark.parametrize("how", ["before", "after", "unknown"])
def test_metadata_is_marked_at_once_or_not_at_all(tmp_path: Path, how: str) -> None:
    """Half of a mark would ask for a copy that nobody has."""

    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        before = await everything(one)
        marking = restorer(Interrupted(one, 1, how)).mark()  # type: ignore[arg-type]
        if how == "unknown":
            await marking
        else:
            with pytest.raises(Breaks):
                await marking
        record = await read_restoration(one, KEYS)
        if how == "before":
            assert await everything(one) == before
        else:
            assert record is not None
            assert record.state == Restoration.RESTORED
            assert await counter(one, KEYS.ledger_id_counter) == record.lost_until

    with_stores(tmp_path, act)


def test_brokers_wait_for_the_comparison_and_deletions_for_an_operator(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        assert not holds_deletion(await read_restoration(one, KEYS))
        await require_reconciled(one, KEYS)
        allowed = {}
        for state in (
            Restoration.WRITING,
            Restoration.RESTORED,
            Restoration.RECONCILED,
            Restoration.RELEASED,
        ):
            await one.put(KEYS.restoration, encode(Restoration(state=state)))
            found = []
            for check in (require_whole, require_reconciled):
                try:
                    await check(one, KEYS)
                    found.append(True)
                except MetadataError:
                    found.append(False)
            allowed[state] = (*found, not holds_deletion(await read_restoration(one, KEYS)))
        assert allowed == {
            Restoration.WRITING: (False, False, False),
            Restoration.RESTORED: (True, False, False),
            Restoration.RECONCILED: (True, True, False),
            Restoration.RELEASED: (True, True, True),
        }

    with_stores(tmp_path, act)


@pytest.mark.parametrize("state", [Restoration.RESTORED, Restoration.RECONCILED, Restoration.RELEASED])
@pytest.mark.parametrize("again", ["elsewhere", "replaced", "marked", "interrupted"])
def test_unreleased_restoration_is_kept(
    tmp_path: Path, again: str, state: Restoration.State.ValueType
) -> None:
    """Ledgers made after the first copy would count as garbage for the second one."""

    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        first = await restorer(one).restore(*await copy(one), replace=True)
        first.state = state
        await one.put(KEYS.restoration, encode(first))
        header, items = await copy(one)
        if again == "elsewhere":
            record = await restorer(other).restore(header, items)
        elif again == "replaced":
            record = await restorer(one).restore(replace_header(header), items, replace=True)
        elif again == "marked":
            record = await restorer(one).mark()
        else:
            with pytest.raises(Breaks):
                await restorer(Interrupted(one, 2, "before")).restore(  # type: ignore[arg-type]
                    replace_header(header), items, replace=True
                )
            record = await restorer(one).restore(replace_header(header), items)
        assert record.lost_from == (251 + SKIP if state == Restoration.RELEASED else 251)
        assert record.lost_until == 251 + 2 * SKIP

    with_stores(tmp_path, act)


def replace_header(header: BackupHeader) -> BackupHeader:
    """As an earlier release wrote it."""
    return replace(header, unreleased_from=0)


def test_ids_that_were_given_are_known_although_a_restoration_was_interrupted(tmp_path: Path) -> None:
    """The copy is of a cluster that had not made a ledger yet, and says nothing of ids."""

    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        await other.put(KEYS.tenant("acme"), encode(Tenant()))
        header, items = await copy(other)
        await one.put(KEYS.ledger_id_counter, encode(Counter(next=50 * SKIP)))
        with pytest.raises(Breaks):
            await restorer(Interrupted(one, 6, "before")).restore(header, items, replace=True)  # type: ignore[arg-type]
        assert KEYS.ledger(250) not in await everything(one)
        record = await restorer(one).restore(header, items)
        assert record.lost_until == 51 * SKIP
        assert await counter(one, KEYS.ledger_id_counter) == 51 * SKIP

    with_stores(tmp_path, act)


class Breaks(Exception):
    pass


class Interrupted:
    """A store whose commits end at some point: before it, after it, or without anybody knowing which."""

    def __init__(self, store: SqliteMetadataStore, at: int, how: str) -> None:
        self._store = store
        self._left = at
        self._how = how
        self.get, self.children = store.get, store.children

    async def commit(self, ops: Sequence[Op]) -> int:
        self._left -= 1
        if self._left == 0 and self._how == "before":
            raise Breaks
        revision = await self._store.commit(ops)
        if self._left == 0:
            raise UnknownOutcome("no answer") if self._how == "unknown" else Breaks
        return revision


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 4, COMMITS])
def test_half_a_copy_is_nothing_to_start_over_and_may_be_put_back_again(
    tmp_path: Path, at: int, how: str
) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        broken = restorer(Interrupted(other, at, how))  # type: ignore[arg-type]
        with pytest.raises(Breaks):
            await broken.restore(header, items)
        if await everything(other) and (at, how) != (COMMITS, "after"):
            with pytest.raises(MetadataError, match="run it again"):
                await ensure_instance_id(other, KEYS, SystemClock(), random.Random(3))
            with pytest.raises(NotRestorable, match="half of a copy"):
                await copy(other)
        record = await restorer(other).restore(header, items, replace=True)
        after = await everything(other)
        assert after[KEYS.restoration] == encode(record)
        assert set(dict(items)) == {key.removeprefix(KEYS.root) for key in after} - {"restoration"}
        assert record.lost_from == 251

    with_stores(tmp_path, act)


@pytest.mark.parametrize("at", range(1, COMMITS + 1))
def test_a_write_whose_outcome_is_unknown_is_found_out_about(tmp_path: Path, at: int) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        record = await restorer(Interrupted(other, at, "unknown")).restore(header, items)  # type: ignore[arg-type]
        after = await everything(other)
        assert after[KEYS.restoration] == encode(record)
        assert len(after) == len(items) + 1

    with_stores(tmp_path, act)


def test_two_restorations_at_once_do_not_mix(tmp_path: Path) -> None:
    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        header, items = await copy(one)
        ends = await asyncio.gather(
            restorer(other).restore(header, items),
            Restorer(other, KEYS, SystemClock(), random.Random(9)).restore(header, items),
            return_exceptions=True,
        )
        won = [end for end in ends if isinstance(end, Restoration)]
        lost = [end for end in ends if isinstance(end, MagnetarError)]
        assert len(won) == len(lost) == 1
        assert isinstance(lost[0], NotRestorable)
        assert "another restoration began" in str(lost[0])
        assert (await everything(other))[KEYS.restoration] == encode(won[0])

    with_stores(tmp_path, act)


def test_transactions_stay_within_what_etcd_takes(tmp_path: Path) -> None:
    sizes: list[tuple[int, int]] = []

    class Measured(Interrupted):
        async def commit(self, ops: Sequence[Op]) -> int:
            sizes.append((len(ops), sum(len(op.value) for op in ops if isinstance(op, Put))))
            return await super().commit(ops)

    async def act(one: SqliteMetadataStore, other: SqliteMetadataStore) -> None:
        await restorer(Measured(other, 0, "")).restore(*await copy(one))  # type: ignore[arg-type]
        assert max(count for count, _ in sizes) <= 128
        assert max(size for _, size in sizes) < 1_400_000

    with_stores(tmp_path, act)

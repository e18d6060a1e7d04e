"""Restored metadata compared with bookies: entries are brought home before anybody can cut them off."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from magnetar.bookie.restoration.reconciler import (
    Findings,
    NotReconcilable,
    Reconciler,
    release,
)
from magnetar.bookie.restoration.unreferenced_ledgers import entries_of
from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import (
    BrokerRegistration,
    Counter,
    Intent,
    LedgerMetadata,
    Restoration,
    TopicHead,
    TopicLedger,
    TransactionLogHead,
    decode,
    encode,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.sim.loop import SimClock

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import Cluster, DirectClients, on_a_cluster, payload, ref_of

ABC = ("b1", "b2", "b3")
LOST_FROM, LOST_UNTIL = 100, 1_000


async def restored(cluster: Cluster) -> None:
    """The record of a restoration whose copy knew the ledgers below LOST_FROM."""
    record = Restoration(state=Restoration.RESTORED, id=b"r" * 16, lost_from=LOST_FROM, lost_until=LOST_UNTIL)
    await cluster.metadata.put(KEYS.restoration, encode(record))
    await cluster.metadata.put(KEYS.ledger_id_counter, encode(Counter(next=LOST_UNTIL)))


async def compare(
    cluster: Cluster, *, without: Sequence[str] = (), mend: bool = True, leave: Sequence[int] = ()
) -> Findings:
    registry = BookieRegistry(cluster.metadata, KEYS)
    await registry.start()
    try:
        reconciler = Reconciler(
            cluster.metadata, KEYS, registry, DirectClients(cluster), SimClock(cluster.loop), random.Random(3)
        )
        return await reconciler.compare(without=without, mend=mend, leave=leave)
    finally:
        await registry.close()


async def record_of(cluster: Cluster) -> Restoration:
    found = await cluster.metadata.get(KEYS.restoration)
    assert found is not None
    return decode(Restoration, found.value)


async def rewrite(
    cluster: Cluster, ledger_id: int, ensembles: Sequence[tuple[int, Sequence[str]]], state: int
) -> None:
    """What the copy says of a ledger that has gone on since."""
    value = await cluster.metadata_of(ledger_id)
    del value.fragments[:]
    for first, bookies in ensembles:
        value.fragments.add(first_entry_id=first, bookie_ids=bookies)
    value.state = LedgerMetadata.State.ValueType(state)
    if state != LedgerMetadata.CLOSED:
        value.last_entry_id = -1
    await cluster.metadata.put(KEYS.ledger(ledger_id), encode(value))


def test_an_open_ledger_that_went_on_with_other_bookies_is_whole_where_metadata_looks() -> None:
    """Without it a recovery could hear from b2 and b3 that nothing follows, and cut off what is confirmed."""

    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC), (10, ("b1", "b4", "b5"))], 40)
        await rewrite(cluster, 1, [(0, ABC)], LedgerMetadata.OPEN)
        await restored(cluster)
        found = await compare(cluster)
        assert (found.brought_home, found.problems, found.missing) == ([1], {}, [])
        await cluster.fully_replicated(1, open_ends={1: 39})
        assert (await record_of(cluster)).state == Restoration.RECONCILED
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN, "its end is for a recovery to say"

    on_a_cluster(act, 5)


@pytest.mark.parametrize("without", [[], ["b1"]])
def test_an_open_ledger_that_one_bookie_alone_has_kept_is_whole_again(without: list[str]) -> None:
    """It was deleted after the copy, and the others have let go of it: two that certainly have nothing would
    end it before its first entry."""

    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 0, state=LedgerMetadata.OPEN)
        await cluster.append("b3", 1, 0, 29)
        await restored(cluster)
        if without:
            await cluster.nodes["b1"].stop()
        found = await compare(cluster, without=without)
        assert (found.brought_home, found.problems) == ([] if without else [1], {})
        assert (await record_of(cluster)).state == Restoration.RECONCILED
        if not without:
            await cluster.fully_replicated(1, open_ends={1: 29})

    on_a_cluster(act)


def test_entries_that_only_strangers_have_are_brought_home() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ("b4", "b5", "b6"))], 30)
        await rewrite(cluster, 1, [(0, ABC)], LedgerMetadata.CLOSED)
        await restored(cluster)
        found = await compare(cluster)
        assert (found.brought_home, found.problems) == ([1], {})
        await cluster.fully_replicated(1)

    on_a_cluster(act, 6)


def test_only_shares_are_copied_of_a_striped_ledger() -> None:
    async def act(cluster: Cluster) -> None:
        ensemble = ("b1", "b2", "b3", "b4", "b5")
        await cluster.ledger(1, [(0, (*ensemble[:4], "b6"))], 40, quorums=(3, 2))
        await rewrite(cluster, 1, [(0, ensemble)], LedgerMetadata.CLOSED)
        await restored(cluster)
        await compare(cluster)
        await cluster.fully_replicated(1)
        assert len(await cluster.entries_at("b5", 1, 0, 39)) == 24

    on_a_cluster(act, 6)


@pytest.mark.parametrize("state", [LedgerMetadata.OPEN, LedgerMetadata.CLOSED])
def test_a_bookie_that_is_gone_for_good_is_replaced_by_one_that_holds_it(state: int) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ("b1", "b2", "b4"))], 30)
        await rewrite(cluster, 1, [(0, ABC)], state)
        await restored(cluster)
        await cluster.nodes["b3"].stop()
        with pytest.raises(NotReconcilable, match="not up: b3"):
            await compare(cluster)
        assert (await record_of(cluster)).state == Restoration.RESTORED
        found = await compare(cluster, without=["b3"])
        assert (found.brought_home, found.problems) == ([1], {})
        assert cluster.named(1) == {"b1", "b2", "b4"}
        await cluster.fully_replicated(1, open_ends={1: 29})

    on_a_cluster(act, 4)


def test_metadata_that_changes_meanwhile_is_read_again() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ("b1", "b2", "b4"))], 30)
        await rewrite(cluster, 1, [(0, ABC)], LedgerMetadata.CLOSED)
        await restored(cluster)
        await cluster.nodes["b3"].stop()
        commit, interfered = cluster.metadata.commit, list[bool]()

        async def interfering(ops: Sequence[Op]) -> int:
            if not interfered and ops[0].key == KEYS.ledger(1):
                interfered.append(True)
                value = await cluster.metadata_of(1)
                value.properties["touched"] = "yes"
                await cluster.metadata.put(KEYS.ledger(1), encode(value))
            return await commit(ops)

        cluster.metadata.commit = interfering  # type: ignore[method-assign]
        found = await compare(cluster, without=["b3"])
        assert interfered
        assert (found.brought_home, found.problems) == ([1], {})
        assert (await cluster.metadata_of(1)).properties["touched"] == "yes"
        assert cluster.named(1) == {"b1", "b2", "b4"}

    on_a_cluster(act, 4)


def test_irreparable_ledger_keeps_brokers_away() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ("b1", "b2", "b4"))], 30)
        await rewrite(cluster, 1, [(0, ABC)], LedgerMetadata.OPEN)
        await cluster.append("b4", 1, 40, 43)  # nobody has what is between
        await restored(cluster)
        found = await compare(cluster)
        assert list(found.problems) == [1]
        assert "1:30 can be had from none" in found.problems[1]
        assert (await record_of(cluster)).state == Restoration.RESTORED
        with pytest.raises(NotReconcilable, match="reconcile` first"):
            await release(cluster.metadata, KEYS, SimClock(cluster.loop))
        for bookie in ABC:
            await cluster.append(bookie, 1, 30, 39)
        found = await compare(cluster)
        assert found.problems == {}
        assert (await record_of(cluster)).state == Restoration.RECONCILED

    on_a_cluster(act, 4)


def test_irreparable_ledger_is_left_by_its_id() -> None:
    """One ledger must not keep a cluster down for ever."""

    async def act(cluster: Cluster) -> None:
        for ledger_id in (1, 2):
            await cluster.ledger(ledger_id, [(0, ("b1", "b2", "b4"))], 30)
            await rewrite(cluster, ledger_id, [(0, ABC)], LedgerMetadata.OPEN)
            await cluster.append("b4", ledger_id, 40, 43)
        await restored(cluster)
        found = await compare(cluster, leave=[1])
        assert list(found.problems) == [1, 2]
        assert (await record_of(cluster)).state == Restoration.RESTORED
        found = await compare(cluster, leave=[1, 2])
        assert list(found.problems) == [1, 2]
        assert (await record_of(cluster)).state == Restoration.RECONCILED

    on_a_cluster(act, 4)


def test_nothing_is_mended_while_a_broker_is_up() -> None:
    """It may be at work on the open ledgers, over metadata that nobody had compared."""

    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ("b1", "b2", "b4"))], 30)
        await rewrite(cluster, 1, [(0, ABC)], LedgerMetadata.OPEN)
        await restored(cluster)
        await cluster.metadata.put(KEYS.broker("host:8080"), encode(BrokerRegistration()))
        assert (await compare(cluster, mend=False)).brought_home == [1], "a look harms nobody"
        with pytest.raises(NotReconcilable, match="host:8080"):
            await compare(cluster)
        assert (await record_of(cluster)).state == Restoration.RESTORED
        await cluster.metadata.delete(KEYS.broker("host:8080"))
        await compare(cluster)
        await cluster.metadata.put(KEYS.broker("host:8080"), encode(BrokerRegistration()))
        await compare(cluster)

    on_a_cluster(act, 4)


def test_ledgers_made_since_are_named_and_garbage_is_counted() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        await cluster.ledger(2, [(0, ABC)], 10)
        await cluster.ledger(LOST_FROM + 1, [(0, ABC)], 20)
        for gone in (2, LOST_FROM + 1):
            await cluster.metadata.delete(KEYS.ledger(gone))
        await restored(cluster)
        found = await compare(cluster)
        assert (found.ledgers, found.garbage) == (1, 1)
        [unnamed] = found.unnamed
        assert (unnamed.ref, unnamed.entries, unnamed.bookies) == (ref_of(LOST_FROM + 1), 20, ABC)
        assert unnamed.byte_length > 0

    on_a_cluster(act)


def test_a_ledger_that_was_made_while_the_copy_was_taken_is_unnamed_although_metadata_has_it() -> None:
    """Its topic does not name it yet: brokers would clear it as an orphan, with what was confirmed since."""

    async def act(cluster: Cluster) -> None:
        name = TopicName.parse("persistent://a/b/t")
        for number in range(1, 8):
            value = await cluster.ledger(number, [(0, ABC)], 10)
            value.properties["topic"] = name.full if number != 6 else "persistent://a/b/deleted"
            if number == 5:
                del value.properties["topic"]
            await cluster.metadata.put(KEYS.ledger(number), encode(value))
        head = TopicHead(creation_id=9)
        head.open_ledgers.add().id = 1
        head.cursor_ledger.id = 2
        await cluster.metadata.put(KEYS.topic_head(name), encode(head))
        await cluster.metadata.put(KEYS.topic_ledger(9, 3), encode(TopicLedger()))
        deletion, whole = Intent(), Intent()
        deletion.delete_ledger.ref.id = 4
        whole.delete_topic.name = "persistent://a/b/deleted"
        await cluster.metadata.put(KEYS.intent("one"), encode(deletion))
        await cluster.metadata.put(KEYS.intent("other"), encode(whole))
        for number in (8, 9):
            value = await cluster.ledger(number, [(0, ABC)], 10)
            value.properties.update({"coordinator": "3", "kind": "transactions"})
            await cluster.metadata.put(KEYS.ledger(number), encode(value))
        log_head = TransactionLogHead()
        log_head.log.id = 8
        await cluster.metadata.put(KEYS.transaction_log_head(3), encode(log_head))
        await restored(cluster)
        found = await compare(cluster)
        [unnamed, unnamed_log] = found.unnamed
        assert (unnamed.ref, unnamed.entries, unnamed.topic) == (ref_of(7), 10, name.full)
        assert (unnamed_log.ref, unnamed_log.topic) == (ref_of(9), "transaction coordinator 3")
        again = await compare(cluster, mend=False)
        assert again.unnamed == found.unnamed

    on_a_cluster(act)


def test_a_ledger_whose_id_was_given_again_is_unnamed() -> None:
    """Metadata went back, and was marked only after brokers had gone on with it: no counter says so."""

    async def act(cluster: Cluster) -> None:
        await cluster.ledger(7, [(0, ABC)], 10)
        value = await cluster.metadata_of(7)
        value.ref.key += 1
        await cluster.metadata.put(KEYS.ledger(7), encode(value))
        await restored(cluster)
        found = await compare(cluster)
        assert ([each.ref for each in found.unnamed], found.garbage) == ([ref_of(7)], 0)

    on_a_cluster(act)


def test_ledgers_created_and_deleted_later_are_ignored() -> None:
    async def act(cluster: Cluster) -> None:
        await restored(cluster)
        await compare(cluster)
        await cluster.ledger(LOST_UNTIL + 1, [(0, ABC)], 10)
        await cluster.ledger(LOST_UNTIL + 2, [(0, ("b1", "b2", "b4"))], 10)
        await cluster.metadata.delete(KEYS.ledger(LOST_UNTIL + 1))
        await rewrite(cluster, LOST_UNTIL + 2, [(0, ABC)], LedgerMetadata.OPEN)
        found = await compare(cluster)
        assert (found.unnamed, found.brought_home, found.garbage) == ([], [], 1)
        assert cluster.appends == [], "a writer may be at work on the open one"

    on_a_cluster(act, 4)


def test_unreferenced_ledger_is_read_from_any_bookie_with_an_entry() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.append("b1", 1, 0, 9)
        await cluster.append("b2", 1, 5, 14)
        await cluster.append("b3", 1, 17, 19)
        held = {"b1": 9, "b2": 14, "b3": 19}
        states = {bookie: LedgerState(last_entry_id=last) for bookie, last in held.items()}
        found = [item async for item in entries_of(DirectClients(cluster), ref_of(1), states)]
        assert [entry_id for entry_id, _ in found] == list(range(20))
        assert [entry_id for entry_id, entry in found if entry is None] == [15, 16]
        assert all(entry in (None, payload(1, entry_id)) for entry_id, entry in found)

    on_a_cluster(act)


def test_ledgers_without_a_holder_are_reported_with_their_topic() -> None:
    async def act(cluster: Cluster) -> None:
        value = LedgerMetadata(
            state=LedgerMetadata.CLOSED,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            last_entry_id=9,
            properties={"topic": "persistent://a/b/t"},
        )
        value.ref.id, value.ref.key = 5, 6
        value.fragments.add(first_entry_id=0, bookie_ids=ABC)
        await cluster.metadata.put(KEYS.ledger(5), encode(value))
        await restored(cluster)
        [missing] = (await compare(cluster)).missing
        assert (missing.ledger_id, missing.topic, missing.entries) == (5, "persistent://a/b/t", 10)
        value.ref.id = LOST_UNTIL  # brokers are up by now: one that was made since bookies were asked
        await cluster.metadata.put(KEYS.ledger(LOST_UNTIL), encode(value))
        await cluster.metadata.put(KEYS.ledger_id_counter, encode(Counter(next=LOST_UNTIL + 1)))
        assert [each.ledger_id for each in (await compare(cluster)).missing] == [5]

    on_a_cluster(act)


def test_ids_that_bookies_know_are_never_given_again() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(LOST_UNTIL + 7, [(0, ABC)], 10)
        await cluster.metadata.delete(KEYS.ledger(LOST_UNTIL + 7))
        await restored(cluster)
        await compare(cluster)
        found = await cluster.metadata.get(KEYS.ledger_id_counter)
        assert found is not None
        assert decode(Counter, found.value).next == LOST_UNTIL + 8
        assert (await record_of(cluster)).lost_until == LOST_UNTIL + 8

    on_a_cluster(act)


def test_a_look_changes_nothing() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ("b1", "b2", "b4"))], 30)
        await rewrite(cluster, 1, [(0, ABC)], LedgerMetadata.OPEN)
        await restored(cluster)
        before = cluster.server.dump()
        found = await compare(cluster, mend=False)
        assert found.brought_home == [1]
        assert cluster.appends == []
        assert cluster.server.dump() == before

    on_a_cluster(act, 4)


def test_only_restored_metadata_is_compared_and_released() -> None:
    async def act(cluster: Cluster) -> None:
        with pytest.raises(NotReconcilable, match="was not restored"):
            await compare(cluster)
        with pytest.raises(NotReconcilable, match="was not restored"):
            await release(cluster.metadata, KEYS, SimClock(cluster.loop))
        await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.WRITING)))
        for attempt in (compare(cluster), release(cluster.metadata, KEYS, SimClock(cluster.loop))):
            with pytest.raises(NotReconcilable, match="not finished"):
                await attempt
        await restored(cluster)
        await compare(cluster)
        record = await release(cluster.metadata, KEYS, SimClock(cluster.loop))
        assert record.state == (await record_of(cluster)).state == Restoration.RELEASED
        assert await release(cluster.metadata, KEYS, SimClock(cluster.loop)) == record

    on_a_cluster(act)

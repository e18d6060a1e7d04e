"""The steps of a closed ledger to objects: who may take them, and that twice is once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.common.errors import MetadataError, TopicNotFound
from magnetar.common.metadata.metadata_pb2 import LedgerRef, Offload
from magnetar.common.metadata.values import TopicHead, TopicLedger, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    CountsDiffer,
    NoLedgerToOffload,
    NotWanted,
    OffloadedAlready,
    OffloadRefused,
    OffloadRunning,
    OnlyCopy,
)
from magnetar.ledger.managed_ledger import offload_state as steps
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

from tests.examples import examples
from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import simulated

A, B = b"a" * 16, b"b" * 16
SHA = b"s" * 32
LOCATION = "file:///objects"
TOPIC = TopicName.parse("orders")
STALE_MS = 1_000


def closed(entries: int = 10, ledger_id: int = 7) -> TopicLedger:
    return TopicLedger(
        ref=LedgerRef(id=ledger_id, key=99),
        first_entry_id=0,
        last_entry_id=entries - 1,
        entries=entries,
        byte_length=1000,
        closed_ms=5,
    )


def wanted(now_ms: int = 10) -> TopicLedger:
    return steps.want(closed(), location=LOCATION, exact=False, now_ms=now_ms)


def begin(ledger: TopicLedger, attempt: bytes = A, now_ms: int = 20) -> TopicLedger:
    path = f"public/default/orders/{attempt.hex()}"
    return steps.begin(ledger, attempt=attempt, path=path, now_ms=now_ms, stale_after_ms=STALE_MS)


def complete(
    ledger: TopicLedger,
    attempt: bytes = A,
    *,
    entries: int = 10,
    rows: int = 12,
    raw: int = 1,
    sha: bytes = SHA,
    now_ms: int = 30,
) -> TopicLedger:
    return steps.complete(
        ledger,
        attempt=attempt,
        entries=entries,
        rows=rows,
        raw_entries=raw,
        object_bytes=500,
        manifest_sha256=sha,
        now_ms=now_ms,
    )


def test_a_ledger_goes_from_wanted_to_complete_and_leaves_bookies() -> None:
    ledger = wanted()
    assert ledger.offload.state == Offload.WANTED
    assert (ledger.offload.location, ledger.offload.wanted_ms) == (LOCATION, 10)
    ledger = begin(ledger)
    assert ledger.offload.state == Offload.RUNNING
    assert (ledger.offload.attempt, ledger.offload.begun_ms) == (A, 20)
    ledger = complete(ledger)
    assert steps.is_complete(ledger)
    offload = ledger.offload
    assert (offload.rows, offload.raw_entries, offload.object_bytes, offload.manifest_sha256) == (
        12,
        1,
        500,
        SHA,
    )
    assert not steps.has_left_bookies(ledger)
    ledger = steps.leave(ledger, attempt=A, now_ms=40)
    assert steps.has_left_bookies(ledger)
    assert steps.has_left_bookies(decode(TopicLedger, encode(ledger)))
    assert ledger.offload.left_bookies_ms == 40


def test_no_step_changes_the_value_that_it_is_given() -> None:
    for ledger, step in (
        (closed(), partial(steps.want, location=LOCATION, now_ms=1)),
        (wanted(), begin),
        (begin(wanted()), complete),
        (begin(wanted()), partial(steps.fail, attempt=A, reason="r", now_ms=1)),
        (complete(begin(wanted())), partial(steps.leave, attempt=A, now_ms=1)),
        (complete(begin(wanted())), partial(steps.again, attempt=A, error="e", now_ms=1)),
    ):
        before = ledger.SerializeToString(deterministic=True)
        after = step(ledger)
        assert ledger.SerializeToString(deterministic=True) == before
        assert after.SerializeToString(deterministic=True) != before


def test_an_empty_ledger_is_not_offloaded() -> None:
    with pytest.raises(NoLedgerToOffload, match="empty"):
        steps.want(closed(0), location=LOCATION, now_ms=1)


def test_wanting_again_changes_the_place_of_one_that_waits_and_of_no_other() -> None:
    def elsewhere(ledger: TopicLedger) -> TopicLedger:
        return steps.want(ledger, location="s3://bucket/other/", exact=True, now_ms=99)

    moved = elsewhere(wanted())
    assert (moved.offload.location, moved.offload.exact) == ("s3://bucket/other", True)
    assert moved.offload.wanted_ms == 10, "it does not lose its turn"
    for ledger in (begin(wanted()), complete(begin(wanted()))):
        assert elsewhere(ledger) == ledger


def test_only_one_attempt_runs_and_its_sign_of_life_keeps_others_away() -> None:
    running = begin(wanted(), A, now_ms=100)
    with pytest.raises(OffloadRunning, match=A.hex()):
        begin(running, B, now_ms=100 + STALE_MS - 1)
    alive = begin(running, A, now_ms=900)
    assert (alive.offload.begun_ms, alive.offload.heard_ms) == (100, 900)
    with pytest.raises(OffloadRunning):
        begin(alive, B, now_ms=900 + STALE_MS - 1)
    taken = begin(alive, B, now_ms=900 + STALE_MS)
    assert (taken.offload.attempt, taken.offload.failures) == (B, 1)
    assert A.hex() in taken.offload.error
    with pytest.raises(AttemptOver):
        complete(taken, A)
    with pytest.raises(AttemptOver):
        steps.fail(taken, attempt=A, reason="late", now_ms=1)
    assert steps.is_complete(complete(taken, B))


def test_slow_clock_allows_no_takeover() -> None:
    running = begin(wanted(), A, now_ms=10_000_000)
    with pytest.raises(OffloadRunning):
        begin(running, B, now_ms=5)
    assert begin(running, A, now_ms=5).offload.heard_ms == 10_000_000


def test_heartbeat_of_a_wrong_clock_blocks_no_takeover_forever() -> None:
    year_ms = 365 * 24 * 60 * 60 * 1000
    now_ms = 10_000_000
    running = begin(wanted(), A, now_ms=now_ms + year_ms)
    assert steps.is_stale(running, now_ms)
    other = begin(running, B, now_ms=now_ms)
    assert (other.offload.attempt, other.offload.heard_ms) == (B, now_ms)
    alive = begin(running, A, now_ms=now_ms)
    assert alive.offload.heard_ms == now_ms, "the clock is right again, and so is what it says"
    assert not steps.is_stale(alive, now_ms)
    with pytest.raises(OffloadRunning):
        begin(alive, B, now_ms=now_ms + 1)


def test_unwanted_or_complete_offload_is_not_started() -> None:
    with pytest.raises(NotWanted):
        begin(closed())
    with pytest.raises(OffloadedAlready):
        begin(complete(begin(wanted())), B)
    with pytest.raises(AttemptOver, match="16 random bytes"):
        begin(wanted(), b"short")


def test_objects_that_do_not_hold_the_ledger_are_not_complete() -> None:
    running = begin(wanted())
    for wrong in (
        partial(complete, entries=9),
        partial(complete, entries=11, rows=12),
        partial(complete, rows=9),
        partial(complete, raw=11),
        partial(complete, sha=b"short"),
    ):
        with pytest.raises(CountsDiffer):
            wrong(running)
    for not_running in (wanted(), closed()):
        with pytest.raises(OffloadRefused):
            complete(not_running)


def test_repeated_step_has_no_effect() -> None:
    done = complete(begin(wanted()))
    assert complete(done, now_ms=99) == done
    with pytest.raises(CountsDiffer, match="another manifest"):
        complete(done, sha=b"t" * 32)
    failed = steps.fail(begin(wanted()), attempt=A, reason="no", now_ms=50)
    assert steps.fail(failed, attempt=A, reason="no", now_ms=60) == failed
    damaged = steps.again(done, attempt=A, error="bad", now_ms=50)
    assert steps.again(damaged, attempt=A, error="bad", now_ms=60) == damaged
    left = steps.leave(done, attempt=A, now_ms=50)
    assert steps.leave(left, attempt=A, now_ms=60) == left


def test_a_failed_attempt_goes_behind_those_that_wait_and_never_comes_back() -> None:
    failed = steps.fail(begin(wanted(10)), attempt=A, reason="x" * 5_000, now_ms=50)
    offload = failed.offload
    assert (offload.state, offload.failures, offload.wanted_ms) == (Offload.WANTED, 1, 50)
    assert len(offload.error) == steps.ERROR_CHARS_MAX
    assert offload.location == LOCATION
    with pytest.raises(AttemptOver, match="given up"):
        begin(failed, A)
    second = begin(failed, B)
    assert (second.offload.attempt, second.offload.failures) == (B, 1)
    done = complete(second, B)
    assert (done.offload.error, done.offload.failures) == ("", 1)
    with pytest.raises(OffloadedAlready):
        steps.fail(done, attempt=B, reason="late", now_ms=1)


def test_damaged_objects_are_written_again_only_while_bookies_have_the_ledger() -> None:
    done = complete(begin(wanted()))
    again = steps.again(done, attempt=A, error="part-0 is short", now_ms=70)
    assert (again.offload.state, again.offload.error) == (Offload.WANTED, "part-0 is short")
    with pytest.raises(AttemptOver):
        steps.again(done, attempt=B, error="another's", now_ms=70)
    with pytest.raises(OnlyCopy):
        steps.again(steps.leave(done, attempt=A, now_ms=60), attempt=A, error="late", now_ms=70)


def test_bookies_are_left_only_for_the_objects_that_were_verified() -> None:
    for ledger in (closed(), wanted(), begin(wanted())):
        with pytest.raises(AttemptOver):
            steps.leave(ledger, attempt=A, now_ms=1)
    with pytest.raises(AttemptOver):
        steps.leave(complete(begin(wanted())), attempt=B, now_ms=1)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("file:///a/b/", "file:///a/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/prefix//", "s3://bucket/prefix"),
        (
            "abfs://container@account.dfs.core.windows.net/x",
            "abfs://container@account.dfs.core.windows.net/x",
        ),
    ],
)
def test_a_location_is_kept_without_a_slash_at_its_end(given: str, kept: str) -> None:
    assert steps.check_location(given) == kept


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/a/b",
        "bucket/x",
        "s3://",
        "file://relative/x",
        "s3://b/../c",
        "s3://b/a b",
        "s3://b/x?y=1",
        "x" * 3_000,
    ],
)
def test_invalid_location_is_refused_with_the_expected_form(location: str) -> None:
    with pytest.raises(BadLocation, match=r"s3://bucket/prefix"):
        steps.check_location(location)


@pytest.mark.parametrize(
    "location", ["s3://KEY:SECRET@bucket/x", "s3://SECRET@bucket/x", "https://u:SECRET@h/x"]
)
def test_credentials_in_a_location_are_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(BadLocation, match="environment") as raised:
        steps.check_location(location)
    assert "SECRET" not in str(raised.value)


ATTEMPTS = st.sampled_from([A, B, b"c" * 16])
TAKES = st.one_of(
    st.tuples(st.just("want"), st.just(b"")),
    st.tuples(st.sampled_from(["begin", "complete", "fail", "again", "leave"]), ATTEMPTS),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(TAKES, st.integers(0, STALE_MS)), max_size=30))
def test_whatever_many_attempts_do_in_any_order_only_one_completes_and_what_left_never_comes_back(
    taken: list[tuple[tuple[str, bytes], int]],
) -> None:
    ledger, now_ms = closed(), 0
    for (step, attempt), passed_ms in taken:
        now_ms += passed_ms
        do: dict[str, Callable[[TopicLedger], TopicLedger]] = {
            "want": partial(steps.want, location=LOCATION, now_ms=now_ms),
            "begin": partial(begin, attempt=attempt, now_ms=now_ms),
            "complete": partial(complete, attempt=attempt, now_ms=now_ms),
            "fail": partial(steps.fail, attempt=attempt, reason="r", now_ms=now_ms),
            "again": partial(steps.again, attempt=attempt, error="e", now_ms=now_ms),
            "leave": partial(steps.leave, attempt=attempt, now_ms=now_ms),
        }
        try:
            after = do[step](ledger)
        except OffloadRefused:
            continue
        assert do[step](after) == after, "twice is once"
        if steps.has_left_bookies(ledger):
            assert after == ledger
        if steps.is_complete(after) and not steps.is_complete(ledger):
            assert ledger.offload.state == Offload.RUNNING
            assert ledger.offload.attempt == after.offload.attempt == attempt
        if steps.is_complete(ledger) and not steps.is_complete(after):
            assert step == "again"
        before = ledger.offload
        if before.state == Offload.RUNNING and after.offload.attempt != before.attempt:
            assert now_ms - max(before.begun_ms, before.heard_ms) >= STALE_MS
        if after.offload.state == Offload.COMPLETE:
            assert after.offload.manifest_sha256 == SHA
        if ledger.offload.state == Offload.RUNNING and after.offload.state == Offload.WANTED:
            assert after.offload.wanted_ms == now_ms
        ledger = after


# --- by compare-and-set ---


@dataclass
class Kept:
    """Topics with closed ledgers in simulated metadata."""

    process: Process
    ledgers: OffloadLedgers
    creation_ids: dict[TopicName, int] = field(default_factory=dict)

    async def make(self, topic: TopicName, *ledgers: TopicLedger) -> int:
        creation_id = self.creation_ids[topic] = len(self.creation_ids) + 1
        metadata = self.process.metadata
        await metadata.put(KEYS.topic_head(topic), encode(TopicHead(creation_id=creation_id)))
        await metadata.put(KEYS.namespace(topic.namespace), b"")
        for ledger in ledgers:
            await metadata.put(KEYS.topic_ledger(creation_id, ledger.ref.id), encode(ledger))
        return creation_id


def kept(process: Process) -> Kept:
    return Kept(process, OffloadLedgers(process.metadata, KEYS, process.clock))


def test_one_of_two_concurrent_attempts_gets_the_ledger() -> None:
    async def scenario(process: Process) -> None:
        made = kept(process)
        creation_id = await made.make(TOPIC, wanted())
        attempts = [bytes([number]) * 16 for number in range(8)]
        outcomes = await asyncio.gather(
            *(
                made.ledgers.change(TOPIC, creation_id, 7, partial(begin, attempt=attempt))
                for attempt in attempts
            ),
            return_exceptions=True,
        )
        (winner,) = (each for each in outcomes if isinstance(each, TopicLedger))
        assert sum(isinstance(each, OffloadRunning) for each in outcomes) == len(attempts) - 1
        assert await made.ledgers.find(TOPIC, creation_id, 7) == winner

    simulated(scenario)


@pytest.mark.parametrize("applied", [True, False])
def test_a_step_whose_outcome_is_unknown_is_taken_once(applied: bool) -> None:
    async def scenario(process: Process) -> None:
        made = kept(process)
        creation_id = await made.make(TOPIC, wanted())
        process.metadata.lose_next_outcome(applied=applied)
        begun = await made.ledgers.change(TOPIC, creation_id, 7, begin)
        assert begun.offload.attempt == A
        process.metadata.lose_next_outcome(applied=applied)
        failed = await made.ledgers.change(
            TOPIC, creation_id, 7, partial(steps.fail, attempt=A, reason="r", now_ms=9)
        )
        assert failed.offload.failures == 1
        assert await made.ledgers.find(TOPIC, creation_id, 7) == failed

    simulated(scenario)


def test_a_step_that_changes_nothing_is_not_written() -> None:
    async def scenario(process: Process) -> None:
        made = kept(process)
        creation_id = await made.make(TOPIC, complete(begin(wanted())))
        before = await process.metadata.get(KEYS.topic_ledger(creation_id, 7))
        await made.ledgers.change(TOPIC, creation_id, 7, complete)
        after = await process.metadata.get(KEYS.topic_ledger(creation_id, 7))
        assert before == after

    simulated(scenario)


def test_a_ledger_that_never_stands_still_and_one_that_is_gone_are_errors() -> None:
    async def scenario(process: Process) -> None:
        made = kept(process)
        creation_id = await made.make(TOPIC, wanted())
        key = KEYS.topic_ledger(creation_id, 7)
        get = process.metadata.get

        async def meanwhile(asked: str) -> object:
            found = await get(asked)
            if asked == key and found is not None:
                await process.metadata.put(key, found.value)
            return found

        process.metadata.get = meanwhile  # type: ignore[method-assign,assignment]
        with pytest.raises(MetadataError, match="keeps being changed"):
            await made.ledgers.change(TOPIC, creation_id, 7, begin)
        process.metadata.get = get  # type: ignore[method-assign]
        with pytest.raises(NoLedgerToOffload, match="trimmed"):
            await made.ledgers.change(TOPIC, creation_id, 8, begin)
        with pytest.raises(TopicNotFound):
            await made.ledgers.of_topic(TopicName.parse("nobody"))

    simulated(scenario)


def test_all_topics_are_gone_through_in_order_and_from_any_of_them_on() -> None:
    async def scenario(process: Process) -> None:
        made = kept(process)
        names = sorted(
            TopicName.parse(f"persistent://t{tenant}/n{namespace}/topic-{number:03}").full
            for tenant in range(2)
            for namespace in range(2)
            for number in range(40)
        )
        topics = [TopicName.parse(name) for name in names]
        for number, topic in enumerate(topics):
            await made.make(
                topic, *(closed(ledger_id=number * 10 + each) for each in range(1, 1 + number % 3))
            )
        expected = [topic for number, topic in enumerate(topics) if number % 3]
        found = [each async for each in made.ledgers.everywhere()]
        assert [each.topic for each in found] == expected
        assert all(len(each.ledgers) == topics.index(each.topic) % 3 for each in found)
        for at in (0, 3, 40, 79, 80, 159):
            behind = [each.topic async for each in made.ledgers.everywhere(topics[at])]
            assert behind == [each for each in expected if each.full > topics[at].full]
        one = [each.topic async for each in made.ledgers.everywhere(namespace=topics[0].namespace)]
        assert one == [each for each in expected if each.namespace == topics[0].namespace]

    simulated(scenario)


def test_metadata_that_cannot_be_read_is_counted_and_hides_nothing_else() -> None:
    async def scenario(process: Process) -> None:
        made = kept(process)
        creation_id = await made.make(TOPIC, wanted(), closed(ledger_id=9))
        later = TopicName.parse("zzz")
        await made.make(later, closed())
        newer = closed(ledger_id=8)
        newer.format.incompatible_features = 1 << 20
        await process.metadata.put(KEYS.topic_ledger(creation_id, 8), encode(newer))
        broken = TopicName.parse("broken")
        await process.metadata.put(KEYS.topic_head(broken), b"\xff\xff")
        found = {each.topic: each async for each in made.ledgers.everywhere()}
        assert [ledger.ref.id for ledger in found[TOPIC].ledgers] == [7, 9]
        assert found[TOPIC].unreadable == 1
        assert (found[broken].ledgers, found[broken].unreadable) == ([], 1)
        assert found[later].unreadable == 0

    simulated(scenario)

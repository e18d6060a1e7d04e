"""The steps of ledgers as a broker takes them for jobs, and what jobs ask before and after."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from magnetar.broker.offload import topic_names
from magnetar.broker.offload.live_attempts import path_below
from magnetar.broker.offload.topic_owners import SoleOwner
from magnetar.common.errors import InvalidName, NotAllowed, TopicNotFound
from magnetar.common.metadata.values import Intent, LedgerMetadata, TopicLedger, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_errors import may_pass
from magnetar.common.offload.offload_pb2 import (
    COMPLETE,
    RUNNING,
    WANTED,
    AttemptsRequest,
    BeginRequest,
    DeletedRequest,
    DeletionsRequest,
    FailRequest,
    Ledger,
    TopicsRequest,
    WantedRequest,
    WantRequest,
)
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    CountsDiffer,
    NoLedgerToOffload,
    OffloadRunning,
)
from magnetar.ledger.cold.layout import attempt_path
from magnetar.ledger.managed_ledger import offload_state

from tests.simulation.power_loss import KEYS
from tests.unit.broker.offload.world import LOCATION, STALE_MS, A, B, Jobs, with_jobs

NAME = TopicName.parse("orders")


async def leave(jobs: Jobs, ledger: Ledger) -> None:
    """Its bookies let go of a complete ledger."""
    metadata = jobs.made.process.metadata
    key = KEYS.topic_ledger(ledger.creation_id, ledger.ledger_id)
    found = await metadata.get(key)
    assert found is not None
    left = offload_state.leave(decode(TopicLedger, found.value), attempt=A, now_ms=1)
    await metadata.put(key, encode(left), found.version)


def test_a_ledger_goes_all_the_way_and_its_topic_knows_at_once() -> None:
    async def scenario(jobs: Jobs) -> None:
        ledgers = await jobs.closed("orders", 3, 4)
        assert [ledger.entries for ledger in ledgers] == [3, 4]
        assert all(ledger.offload.state == WANTED and ledger.topic == NAME.full for ledger in ledgers)
        assert await jobs.wanted() == [ledger.ledger_id for ledger in ledgers]
        begun = await jobs.begin(ledgers[0])
        assert begun.offload.state == RUNNING
        assert begun.offload.location == LOCATION
        assert begun.offload.path == attempt_path(NAME, begun.ledger_id, A)
        assert not begun.HasField("bookies")
        assert await jobs.wanted() == [ledgers[1].ledger_id]
        assert (await jobs.complete(begun)).offload.state == COMPLETE
        span = (await jobs.load("orders")).ledger.spans.by_id[begun.ledger_id]
        assert span.offload is not None
        assert span.offload.state == int(COMPLETE)
        assert span.offload.path == begun.offload.path
        again = await jobs.work.want(WantRequest(topic="orders", location=LOCATION))
        assert [ledger.ledger_id for ledger in again.ledgers] == [ledgers[1].ledger_id]

    with_jobs(scenario)


def test_complete_ledger_is_offloaded_again_on_request_if_bookies_have_it() -> None:
    async def scenario(jobs: Jobs) -> None:
        damaged, left, open_to_all = await jobs.closed("orders", 3, 4, 5)
        for ledger in (damaged, left):
            await jobs.complete(await jobs.begin(ledger))
        await leave(jobs, left)
        request = WantRequest(topic="orders", location=LOCATION, again=True)
        wanted = (await jobs.work.want(request)).ledgers
        assert [ledger.ledger_id for ledger in wanted] == [damaged.ledger_id, open_to_all.ledger_id]
        assert all(ledger.offload.state == WANTED and not ledger.offload.error for ledger in wanted)
        (deletion,) = (await jobs.work.deletions(DeletionsRequest())).deletions
        assert deletion.path == attempt_path(NAME, damaged.ledger_id, A)
        begun = await jobs.begin(damaged, B)
        assert begun.offload.path == attempt_path(NAME, damaged.ledger_id, B)
        again = (await jobs.work.want(request)).ledgers
        assert [each.offload.state for each in again] == [RUNNING, WANTED], "what runs is left alone"
        (deletion,) = (await jobs.work.deletions(DeletionsRequest())).deletions
        assert deletion.path.endswith(A.hex())

    with_jobs(scenario)


def test_location_comes_from_the_request_or_policies_else_error() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 1, 1)
        with pytest.raises(BadLocation, match="magnetarOffloadLocation"):
            await jobs.work.want(WantRequest(topic="orders"))
        with pytest.raises(BadLocation, match="URI"):
            await jobs.work.want(WantRequest(topic="orders", location="bucket"))
        with pytest.raises(BadLocation):
            await jobs.work.want(WantRequest(topic="orders", location="s3://k:s@bucket"))
        (ledger,) = (
            await jobs.work.want(WantRequest(topic="orders", location="/objects/", exact=True))
        ).ledgers
        assert (ledger.offload.location, ledger.offload.exact) == ("file:///objects", True)

    async def configured(jobs: Jobs) -> None:
        await jobs.publish("orders", 1, 1)
        (ledger,) = (await jobs.work.want(WantRequest(topic="orders"))).ledgers
        assert (ledger.offload.location, ledger.offload.exact) == ("s3://bucket/prefix", False)

    with_jobs(scenario)
    with_jobs(configured, "s3://bucket/prefix")


def test_only_closed_ledgers_wholly_before_a_position_are_wanted() -> None:
    async def scenario(jobs: Jobs) -> None:
        first, second, third = await jobs.publish("orders", 3, 3, 3)

        async def before(ledger_id: int, entry_id: int) -> list[int]:
            response = await jobs.work.want(
                WantRequest(
                    topic="orders", location=LOCATION, before_ledger_id=ledger_id, before_entry_id=entry_id
                )
            )
            return [ledger.ledger_id for ledger in response.ledgers]

        assert await before(first, 2) == []
        assert await before(first, 3) == [first]
        assert await before(second, 0) == [first]
        assert await before(second, 2) == [first]
        assert await before(third, 0) == [first, second]
        assert await before(third, 99) == [first, second], "the open one is not"

    with_jobs(scenario)


def test_the_oldest_wish_comes_first_and_one_that_failed_goes_to_the_end() -> None:
    async def scenario(jobs: Jobs) -> None:
        ids = await jobs.publish("orders", 1, 1, 1, 1)
        ledgers: list[Ledger] = []
        for number in (1, 2, 3):
            response = await jobs.work.want(
                WantRequest(topic="orders", location=LOCATION, before_ledger_id=ids[number])
            )
            ledgers = list(response.ledgers)
            await asyncio.sleep(1)
        others = await jobs.closed("another", 1)
        order = [*ids[:3], others[0].ledger_id]
        assert await jobs.wanted() == order
        assert await jobs.wanted("another", "orders") == order
        assert await jobs.wanted("another", "orders", "another") == order, "once"
        assert await jobs.wanted("another") == order[3:]
        assert await jobs.wanted(most=2) == order[:2]
        assert (await jobs.work.wanted(WantedRequest(most=2))).more
        assert not (await jobs.work.wanted(WantedRequest(most=4))).more
        await asyncio.sleep(1)
        begun = await jobs.begin(ledgers[0])
        await jobs.work.fail(
            FailRequest(
                topic="orders",
                creation_id=begun.creation_id,
                ledger_id=begun.ledger_id,
                attempt=A,
                reason="no space",
            )
        )
        assert await jobs.wanted() == [*order[1:], order[0]]
        (waiting,) = [
            ledger
            for ledger in (await jobs.work.wanted(WantedRequest())).ledgers
            if ledger.ledger_id == order[0]
        ]
        assert (waiting.offload.failures, waiting.offload.error) == (1, "no space")

    with_jobs(scenario)


def test_the_ledger_of_a_job_not_heard_of_for_long_is_wanted_again() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 2)
        await jobs.begin(ledger, A)
        await asyncio.sleep(STALE_MS / 1000 / 2)
        await jobs.begin(ledger, A)
        await asyncio.sleep(STALE_MS / 1000 / 2 + 1)
        assert await jobs.wanted() == []
        with pytest.raises(OffloadRunning):
            await jobs.begin(ledger, B)
        await asyncio.sleep(STALE_MS / 1000)
        assert await jobs.wanted() == [ledger.ledger_id]
        taken = await jobs.begin(ledger, B)
        assert taken.offload.path == attempt_path(NAME, ledger.ledger_id, B)
        with pytest.raises(AttemptOver):
            await jobs.complete(ledger, A)
        await jobs.complete(ledger, B)

    with_jobs(scenario)


def test_objects_without_the_ledger_are_not_complete() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 2)
        await jobs.begin(ledger)
        with pytest.raises(CountsDiffer, match="has 2 entries, and 1 were read back"):
            await jobs.complete(ledger, entries=1)

    with_jobs(scenario)


def test_a_topic_that_was_made_anew_has_nothing_for_the_job_of_the_old_one() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 2)
        await jobs.begin(ledger)
        await jobs.made.registry.delete(NAME, force=True)
        with pytest.raises(TopicNotFound):
            await jobs.complete(ledger)
        await jobs.publish("orders", 2, 2)
        for step in (jobs.begin, jobs.complete):
            with pytest.raises(NoLedgerToOffload, match="recreated"):
                await step(ledger)

    with_jobs(scenario)


def test_bad_requests_are_refused_and_say_what_is_wrong() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 2)
        with pytest.raises(AttemptOver, match="16 random bytes"):
            await jobs.begin(ledger, b"short")
        with pytest.raises(NoLedgerToOffload):
            await jobs.work.begin(
                BeginRequest(topic="orders", creation_id=ledger.creation_id, ledger_id=99, attempt=A)
            )
        for topic, error in (
            ("nobody", TopicNotFound),
            ("non-persistent://public/default/x", NotAllowed),
            ("a/b", InvalidName),
        ):
            with pytest.raises(error):
                await jobs.work.want(WantRequest(topic=topic, location=LOCATION))
            with pytest.raises(error):
                await jobs.work.wanted(WantedRequest(topics=[topic]))
        await jobs.made.partitioned.create_partitioned(TopicName.parse("many"), 2, {})
        with pytest.raises(TopicNotFound, match="many-partition-0 and so on, 2 in all"):
            await jobs.work.want(WantRequest(topic="many", location=LOCATION))

    with_jobs(scenario)


def test_the_bookies_of_a_ledger_are_told_with_their_addresses_until_it_has_left_them() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 2)
        metadata = jobs.made.process.metadata
        key = KEYS.ledger(ledger.ledger_id)
        found = await metadata.get(key)
        assert found is not None
        value = decode(LedgerMetadata, found.value)
        value.fragments.add(first_entry_id=0, bookie_ids=["b1", "b2"])
        value.fragments.add(first_entry_id=1, bookie_ids=["b1", "b3"])
        await metadata.put(key, encode(value))
        addresses = {"b1": "h:1", "b3": "h:3"}
        jobs.work = jobs.working_for(SoleOwner(), addresses.get)
        begun = await jobs.begin(ledger)
        assert decode(LedgerMetadata, begun.bookies.ledger_metadata) == value
        assert dict(begun.bookies.addresses) == addresses
        await jobs.complete(ledger)
        stored_key = KEYS.topic_ledger(ledger.creation_id, ledger.ledger_id)
        stored = await metadata.get(stored_key)
        assert stored is not None
        left = offload_state.leave(decode(TopicLedger, stored.value), attempt=A, now_ms=1)
        await metadata.put(stored_key, encode(left))
        again = await jobs.complete(ledger)
        assert again.offload.left_bookies_ms == 1
        assert not again.HasField("bookies")

    with_jobs(scenario)


def test_topics_are_named_or_matched_and_partitions_stand_for_their_topic() -> None:
    async def scenario(jobs: Jobs) -> None:
        for name in ("orders", "orders-eu", "other"):
            await jobs.load(name)
        await jobs.made.partitioned.create_partitioned(TopicName.parse("many"), 2, {})
        partitions = [f"persistent://public/default/many-partition-{n}" for n in range(2)]

        async def topics(*names: str, pattern: str = "") -> list[str]:
            return list((await jobs.work.topics(TopicsRequest(names=names, pattern=pattern))).topics)

        base = "persistent://public/default"
        assert await topics("orders", "many") == [f"{base}/orders", *partitions]
        assert await topics(partitions[1]) == partitions[1:]
        assert await topics(pattern=f"{base}/orders.*") == [f"{base}/orders", f"{base}/orders-eu"]
        assert await topics(pattern=f"{base}/many") == partitions
        assert await topics("other", pattern=".*/o(ther|rders)") == [f"{base}/other", f"{base}/orders"]
        assert await topics(pattern=f"{base}/orders|{base}/other") == [f"{base}/orders", f"{base}/other"]
        assert await topics(pattern="orders") == [], "the whole name has to match"
        for bad, error in (("(", NotAllowed), ("persistent://no/where/.*", TopicNotFound)):
            with pytest.raises(error):
                await topics(pattern=bad)
        with pytest.raises(TopicNotFound):
            await topics("nobody")

    with_jobs(scenario)


def test_ledgers_that_do_not_fit_in_an_answer_come_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.offload.ledger_steps.ANSWER_BYTES_MAX", 250)

    async def scenario(jobs: Jobs) -> None:
        ids = (await jobs.publish("orders", 1, 1, 1, 1, 1))[:4]
        told = (await jobs.work.want(WantRequest(topic="orders", location=LOCATION))).ledgers
        assert 1 <= len(told) < 4
        assert {ledger.offload.state for ledger in told} == {WANTED}
        begun: list[int] = []
        while True:
            answer = await jobs.work.wanted(WantedRequest())
            assert 1 <= len(answer.ledgers) < 4
            for ledger in answer.ledgers:
                await jobs.begin(ledger)
                begun.append(ledger.ledger_id)
            if not answer.more:
                break
        assert begun == ids

    with_jobs(scenario)


def test_topics_that_do_not_fit_in_an_answer_are_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(jobs: Jobs) -> None:
        for name in ("orders", "orders-eu", "other"):
            await jobs.load(name)
        everything = TopicsRequest(pattern=".*")
        named = TopicsRequest(names=["orders", "other", "orders", "orders-eu"])
        bounds = (("TOPICS_MAX", 3, 2), ("NAMES_BYTES_MAX", 110, 90))
        for bound, enough, too_few in bounds:
            with monkeypatch.context() as patch:
                for request in (everything, named):
                    patch.setattr(topic_names, bound, enough)
                    assert len((await jobs.work.topics(request)).topics) == 3
                    patch.setattr(topic_names, bound, too_few)
                    with pytest.raises(NotAllowed, match="request fewer") as error:
                        await jobs.work.topics(request)
                    assert not may_pass(error.value), "or clients would ask again and again"

    with_jobs(scenario)


def test_no_pattern_keeps_messages_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(jobs: Jobs) -> None:
        for number in range(20):
            await jobs.load(f"orders-{number}")
        with pytest.raises(NotAllowed, match="at most 4096 characters"):
            await jobs.work.topics(TopicsRequest(pattern="a" * 4097))
        turns = [0]

        async def sleep(delay_s: float) -> None:
            turns[0] += 1
            await asyncio.sleep(delay_s)

        looking = SimpleNamespace(sleep=sleep, get_running_loop=asyncio.get_running_loop)
        monkeypatch.setattr(topic_names, "asyncio", looking)
        for slice_s, expected in ((1e9, 0), (-1.0, 20)):
            monkeypatch.setattr(topic_names, "SLICE_S", slice_s)
            turns[0] = 0
            assert len((await jobs.work.topics(TopicsRequest(pattern=".*orders.*"))).topics) == 20
            assert turns[0] == expected

    with_jobs(scenario)


def test_a_pattern_that_goes_on_behind_the_namespace_is_sought_everywhere() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.load("orders")
        for pattern in ("persistent://public/defa/{0}ult/orders", "persistent://public/default/?/orders"):
            found = await jobs.work.topics(TopicsRequest(pattern=pattern))
            assert found.topics == ["persistent://public/default/orders"]

    with_jobs(scenario)


def test_attempts_that_run_or_are_complete_are_named_and_no_others() -> None:
    async def scenario(jobs: Jobs) -> None:
        ledgers = await jobs.closed("orders", 1, 1, 1)
        running = await jobs.begin(ledgers[0])
        await jobs.complete(await jobs.begin(ledgers[1]))
        failed = await jobs.begin(ledgers[2])
        await jobs.work.fail(
            FailRequest(
                topic="orders",
                creation_id=failed.creation_id,
                ledger_id=failed.ledger_id,
                attempt=A,
                reason="x",
            )
        )
        paths = [attempt_path(NAME, ledger.ledger_id, A) for ledger in ledgers[:2]]

        async def attempts(location: str) -> list[str]:
            response = await jobs.work.attempts(AttemptsRequest(location=location))
            assert response.complete
            assert not response.next_after_topic
            return list(response.paths)

        assert paths[0] == running.offload.path
        assert await attempts(LOCATION) == await attempts(LOCATION + "/") == paths
        assert await attempts("file:///obj") == []
        assert await attempts("s3://bucket") == []
        assert await attempts("") == paths
        with pytest.raises(BadLocation):
            await attempts("objects")

    with_jobs(scenario)


def test_objects_of_nested_locations_are_named() -> None:
    assert path_below("s3://b", "s3://b", "t/n") == "t/n"
    assert path_below("s3://b", "s3://b/in/it", "t/n") == "in/it/t/n"
    assert path_below("s3://b", "s3://bb", "t/n") is None
    assert path_below("s3://b/in", "s3://b", "t/n") is None


@pytest.mark.parametrize(("bound", "most"), [("PATHS_MAX", 2), ("PATHS_BYTES_MAX", 200)])
def test_attempts_come_in_pages_and_what_cannot_be_read_forbids_to_sweep(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"magnetar.broker.offload.live_attempts.{bound}", most)

    async def scenario(jobs: Jobs) -> None:
        expected: list[str] = []
        for name in ("a", "b", "c"):
            for ledger in await jobs.closed(name, 1, 1, 1):
                begun = await jobs.begin(ledger)
                expected.append(begun.offload.path)
        found: list[str] = []
        after, pages = "", 0
        while True:
            page = await jobs.work.attempts(AttemptsRequest(location=LOCATION, after_topic=after))
            found += page.paths
            pages += 1
            assert page.complete
            after = page.next_after_topic
            if not after:
                break
        assert found == expected
        assert pages >= 3
        await jobs.made.process.metadata.put(KEYS.topic_head(TopicName.parse("a")), b"\xff")
        page = await jobs.work.attempts(AttemptsRequest(location=LOCATION))
        assert not page.complete

    with_jobs(scenario)


def test_deletions_of_objects_are_told_until_they_were_carried_out() -> None:
    async def scenario(jobs: Jobs) -> None:
        metadata = jobs.made.process.metadata
        for number, location in enumerate((LOCATION, "s3://bucket", LOCATION)):
            intent = Intent(id=f"delete-objects-{number}")
            intent.delete_objects.location, intent.delete_objects.path = location, f"path/{number}"
            await metadata.put(KEYS.intent(intent.id), encode(intent))
        other = Intent(id="delete-ledger-7")
        other.delete_ledger.ref.id = 7
        await metadata.put(KEYS.intent(other.id), encode(other))
        await metadata.put(KEYS.intent("garbage"), b"\xff")

        async def deletions(location: str = "") -> list[str]:
            response = await jobs.work.deletions(DeletionsRequest(location=location))
            assert not response.more
            return [each.path for each in response.deletions]

        assert await deletions() == ["path/0", "path/1", "path/2"]
        assert await deletions(LOCATION) == ["path/0", "path/2"]
        for _ in range(2):
            await jobs.work.deleted(DeletedRequest(intent_id="delete-objects-0"))
            assert await deletions(LOCATION) == ["path/2"]
        with pytest.raises(NotAllowed, match="not about objects"):
            await jobs.work.deleted(DeletedRequest(intent_id=other.id))
        assert await metadata.get(KEYS.intent(other.id)) is not None

    with_jobs(scenario)

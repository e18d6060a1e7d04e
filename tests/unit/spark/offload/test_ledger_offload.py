"""One ledger through the driver, with a service, tasks and a store that fail where they are told to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.offload.offload_errors import OffloadTimedOut
from magnetar.common.offload.offload_pb2 import CompleteRequest, Ledger
from magnetar.common.offload.offload_refusals import AttemptOver
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest
from magnetar.ledger.cold.marker import MARKER_NAME, encode_marker
from magnetar.spark.offload import ledger_offload, tasks
from magnetar.spark.offload.outcomes import Result
from magnetar.spark.offload.tasks import Course, PartTask, TasksFailed, VerifiedPart, VerifyTask, WrittenPart
from pyroaring import BitMap

from tests.unit.spark.offload.test_races import Watched, make_offloader
from tests.unit.spark.offload.world import World, WorldService, WorldStore, WorldTasks


@pytest.fixture
def world() -> World:
    return World(1, 1, trouble=0.0)


def wanted(world: World) -> Ledger:
    (found,) = WorldService(world).wanted()
    return found


def offloader_with(
    world: World, *, service: object = None, tasks: object = None, part_bytes: int = 300
) -> ledger_offload.Offloader:
    made, _ = make_offloader(world)
    changes = {"service": service, "tasks": tasks}
    given = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(made, part_bytes=part_bytes, **given)  # type: ignore[arg-type]


def state(world: World) -> Offload:
    return world.ledgers[0].offload


def test_offloaded_ledger_is_complete_with_its_counts(world: World) -> None:
    made = offloader_with(world)
    outcome = made.offload(wanted(world))
    assert outcome.result is Result.OFFLOADED
    assert state(world).state == Offload.COMPLETE
    manifest = Manifest.from_json(world.objects[f"{state(world).path}/{MANIFEST_NAME}"][0])
    entries = world.ledgers[0].entries
    assert len(manifest.parts) == 4
    assert (manifest.entries, outcome.entries, outcome.rows, state(world).rows) == (entries,) * 4
    assert outcome.object_bytes == sum(len(data) for data, _ in world.objects.values())
    assert isinstance(made.watcher, Watched)
    assert made.watcher.outcomes == [outcome]


def test_the_manifest_is_written_after_the_parts(world: World) -> None:
    order: list[str] = []

    class Noting(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            written = super().write(tasks, course)
            order.extend(world.objects)
            return written

    assert offloader_with(world, tasks=Noting(world)).offload(wanted(world)).result is Result.OFFLOADED
    assert not any(path.endswith(MANIFEST_NAME) for path in order)
    assert len(order) == 4


def test_a_task_that_fails_gives_the_ledger_back_and_cleans_up(world: World) -> None:
    class Failing(WorldTasks):
        def verify(self, tasks: Sequence[VerifyTask], course: Course) -> list[VerifiedPart]:
            raise TasksFailed("a part is damaged")

    outcome = offloader_with(world, tasks=Failing(world)).offload(wanted(world))
    assert (outcome.result, outcome.reason) == (Result.FAILED, "a part is damaged")
    assert (state(world).state, state(world).failures, state(world).error) == (
        Offload.WANTED,
        1,
        "a part is damaged",
    )
    assert not world.objects


def test_counts_that_were_not_written_are_not_committed(world: World) -> None:
    class Miscounting(WorldTasks):
        def verify(self, tasks: Sequence[VerifyTask], course: Course) -> list[VerifiedPart]:
            found = super().verify(tasks, course)
            return [*found[:-1], VerifiedPart(found[-1].entries, found[-1].rows + 1, 0)]

    outcome = offloader_with(world, tasks=Miscounting(world)).offload(wanted(world))
    assert outcome.result is Result.FAILED
    assert state(world).state == Offload.WANTED


def test_entries_that_were_not_written_are_not_committed(world: World) -> None:
    class Short(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            return super().write(tasks, course)[:-1]

    outcome = offloader_with(world, tasks=Short(world)).offload(wanted(world))
    assert outcome.result is Result.FAILED
    assert "were written, the ledger has" in outcome.reason
    assert state(world).state == Offload.WANTED


def test_a_ledger_that_another_job_has_is_left_alone(world: World) -> None:
    ledger = wanted(world)
    WorldService(world).begin(ledger.topic, 1, 0, b"another attempt!")
    outcome = offloader_with(world).offload(ledger)
    assert outcome.result is Result.TAKEN
    assert state(world).attempt == b"another attempt!"
    assert not world.objects


def test_a_ledger_that_a_transaction_holds_back_is_left_as_it_is(world: World) -> None:
    class Holding(WorldService):
        def find(self, topic: str, ledger_id: int) -> Ledger | None:
            found = super().find(topic, ledger_id)
            assert found is not None
            found.last_entry_id, found.held = 0, "waits for transaction (0,17)"
            return found

    outcome = offloader_with(world, service=Holding(world)).offload(wanted(world))
    assert (outcome.result, outcome.reason) == (Result.HELD, "waits for transaction (0,17)")
    assert (state(world).state, state(world).failures) == (Offload.WANTED, 0)
    assert not world.objects


def test_without_an_answer_of_the_owner_nothing_begins(world: World) -> None:
    class Unheard(WorldService):
        def find(self, topic: str, ledger_id: int) -> Ledger | None:
            raise OffloadTimedOut("no answer")

    outcome = offloader_with(world, service=Unheard(world)).offload(wanted(world))
    assert (outcome.result, outcome.reason) == (Result.FAILED, "no answer")
    assert (state(world).state, state(world).failures) == (Offload.WANTED, 0)
    assert not world.objects


def test_tasks_know_the_aborted_entries_as_the_owner_says_them(world: World) -> None:
    class Owner(WorldService):
        def find(self, topic: str, ledger_id: int) -> Ledger | None:
            found = super().find(topic, ledger_id)
            assert found is not None
            found.aborted, found.transactions_told = BitMap([1]).serialize(), True
            return found

    class Noting(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            given.extend(each.source.aborted_entries() for each in tasks)
            return super().write(tasks, course)

    given: list[BitMap | None] = []
    assert offloader_with(world, service=Owner(world), tasks=Noting(world)).offload(wanted(world)).result is (
        Result.OFFLOADED
    )
    assert set(map(tuple, filter(None, given))) == {(1,)}
    assert None not in given


def test_an_attempt_that_was_taken_over_ends_and_leaves_the_other_alone(world: World) -> None:
    class Overtaken(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            written = super().write(tasks, course)
            world.now_ms += 10 * 60_000
            WorldService(world).begin(ledger.topic, 1, 0, b"another attempt!")
            return written

    ledger = wanted(world)
    outcome = offloader_with(world, tasks=Overtaken(world)).offload(ledger)
    assert outcome.result is Result.FAILED
    assert "is over" in outcome.reason
    assert (state(world).state, state(world).attempt) == (Offload.RUNNING, b"another attempt!")


def test_a_lost_heartbeat_ends_the_tasks(world: World) -> None:
    class Beating(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            world.now_ms += 10 * 60_000
            WorldService(world).begin(ledger.topic, 1, 0, b"another attempt!")
            made.heartbeats.beat()
            return super().write(tasks, course)

    ledger = wanted(world)
    made = offloader_with(world, tasks=Beating(world))
    outcome = made.offload(ledger)
    assert outcome.result is Result.FAILED
    assert not world.objects


class Instance(WorldService):
    """Brokers of a cluster with a name."""

    name = b"i" * 16

    def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger:
        ledger = super().begin(topic, creation_id, ledger_id, attempt)
        ledger.instance_id = self.name
        return ledger


class SameMoment(WorldTasks):
    """Another cluster's job, which found no mark either, writes its own while this one is at work."""

    def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
        self.world.objects[MARKER_NAME] = (encode_marker(b"a" * 16), 0)
        return super().write(tasks, course)


def test_a_location_is_marked_before_anything_else_is_written_there(world: World) -> None:
    outcome = offloader_with(world, service=Instance(world)).offload(wanted(world))
    assert outcome.result is Result.OFFLOADED
    assert next(iter(world.objects)) == MARKER_NAME
    assert world.objects[MARKER_NAME][0] == encode_marker(Instance.name)


def test_nothing_is_written_where_another_cluster_sweeps(world: World) -> None:
    world.objects[MARKER_NAME] = (encode_marker(b"a" * 16), 0)
    outcome = offloader_with(world, service=Instance(world)).offload(wanted(world))
    assert outcome.result is Result.FAILED
    assert "location of its own" in outcome.reason
    assert "location of its own" in state(world).error
    assert set(world.objects) == {MARKER_NAME}


def test_nothing_counts_where_another_clusters_mark_came_meanwhile(world: World) -> None:
    made = offloader_with(world, service=Instance(world), tasks=SameMoment(world))
    outcome = made.offload(wanted(world))
    assert outcome.result is Result.FAILED
    assert state(world).state == Offload.WANTED
    assert set(world.objects) == {MARKER_NAME}


class Unanswered(WorldService):
    """Does what it is asked, and says nothing of one call."""

    def complete(self, request: CompleteRequest) -> Ledger:
        super().complete(request)
        raise OffloadTimedOut("no answer")


def test_unanswered_completion_is_settled_later_and_its_objects_stay(world: World) -> None:
    made = offloader_with(world, service=Unanswered(world))
    outcome = made.offload(wanted(world))
    assert outcome.result is Result.UNSETTLED
    assert state(world).state == Offload.COMPLETE
    world.check()
    assert made.settle(outcome) == outcome
    settled = offloader_with(world).settle(outcome)
    assert (settled.result, settled.complete) == (Result.OFFLOADED, None)
    assert settled.rows == outcome.rows


def test_an_unheard_begin_is_given_up_later(world: World) -> None:
    class Unheard(WorldService):
        def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger:
            super().begin(topic, creation_id, ledger_id, attempt)
            raise OffloadTimedOut("no answer")

    outcome = offloader_with(world, service=Unheard(world)).offload(wanted(world))
    assert outcome.result is Result.UNSETTLED
    assert state(world).state == Offload.RUNNING
    assert offloader_with(world).settle(outcome).result is Result.FAILED
    assert state(world).state == Offload.WANTED


def test_unexpected_error_releases_the_ledger(world: World) -> None:
    class Broken(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        offloader_with(world, tasks=Broken(world)).offload(wanted(world))
    assert state(world).state == Offload.WANTED


def test_a_refused_fail_is_told_and_cleans_nothing_up(world: World) -> None:
    class Refusing(WorldService):
        def fail(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes, reason: str) -> None:
            raise AttemptOver("not yours")

    class Failing(WorldTasks):
        def verify(self, tasks: Sequence[VerifyTask], course: Course) -> list[VerifiedPart]:
            raise TasksFailed("damaged")

    made = offloader_with(world, service=Refusing(world), tasks=Failing(world))
    outcome = made.offload(wanted(world))
    assert (outcome.result, outcome.reason) == (Result.FAILED, "damaged; then: not yours")
    assert world.objects


def test_files_of_a_killed_task_are_removed(world: World) -> None:
    class Littering(WorldTasks):
        def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
            world.objects[f"{tasks[0].path}/.part-00000.parquet.1-2.unfinished"] = (b"half", 0)
            return super().write(tasks, course)

    assert offloader_with(world, tasks=Littering(world)).offload(wanted(world)).result is Result.OFFLOADED
    assert not any("unfinished" in path for path in world.objects)
    assert WorldStore(world).read(f"{state(world).path}/{MANIFEST_NAME}")


def test_patience_ends_at_once_when_the_job_is_stopped() -> None:
    from threading import Event

    from magnetar.spark.offload.retries import Patience

    stop = Event()
    stop.set()

    def away() -> None:
        raise ServiceNotReady("away")

    with pytest.raises(tasks.Stopped):
        Patience(for_s=1e6, stop=stop).call(away)

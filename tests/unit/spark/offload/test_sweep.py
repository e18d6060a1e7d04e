"""`magnetar offload sweep` at one location: what goes, and where it refuses to delete anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.client_calls import Attempts, Deletions
from magnetar.common.offload.offload_pb2 import Deletion
from magnetar.ledger.cold.layout import MANIFEST_NAME, attempt_path, part_name
from magnetar.ledger.cold.marker import MARKER_NAME, encode_marker
from magnetar.ledger.cold.objects import NoSuchObject, ObjectStoreError
from magnetar.spark.offload.sweep import SweepRefused, Swept, sweep_location

LOCATION = "mem://cold"
TOPIC = TopicName.parse("persistent://public/default/orders")
NOW_MS = 2_000_000_000_000
OURS, ANOTHERS = b"o" * 16, b"a" * 16
PAGE = 3


def path_of(number: int) -> str:
    return attempt_path(TOPIC, number, number.to_bytes(16, "big"))


@dataclass
class Brokers:
    """They answer in small pages."""

    named: set[str] = field(default_factory=set)
    recorded: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    asked: int = 0
    begins: str = ""
    """An attempt that begins when they are asked for the second time."""

    def deletions(self, location: str = "", after_intent_id: str = "") -> Deletions:
        if location not in ("", LOCATION):
            return Deletions([], more=False, instance_id=OURS)
        found = [
            Deletion(intent_id=intent_id, location=LOCATION, path=path)
            for intent_id, path in sorted(self.recorded.items())
            if intent_id > after_intent_id
        ]
        return Deletions(found[:PAGE], more=len(found) > PAGE, instance_id=OURS)

    def deleted(self, intent_id: str) -> None:
        self.recorded.pop(intent_id, None)

    def attempts(self, location: str) -> Attempts:
        assert location == "", "one place may go by two URIs"
        self.asked += 1
        if self.asked == 2 and self.begins:
            self.named.add(self.begins)
        return Attempts(sorted(self.named), self.complete)


@dataclass
class Objects:
    stored: dict[str, bytes] = field(default_factory=lambda: {MARKER_NAME: encode_marker(OURS)})
    stuck: set[str] = field(default_factory=set)

    def put(self, path: str, *, whole: bool = False) -> None:
        for name in (part_name(0), *([MANIFEST_NAME] if whole else [])):
            self.stored[f"{path}/{name}"] = b""

    def list(self, prefix: str = "") -> Iterable[tuple[str, int, int]]:
        return [(path, 10, 0) for path in self.stored if not prefix or path.startswith(f"{prefix}/")]

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path not in self.stored:
            raise NoSuchObject(path)
        return self.stored[path][offset : offset + length]

    def delete(self, path: str) -> None:
        if path.rpartition("/")[0] in self.stuck:
            raise ObjectStoreError(f"{path} cannot be deleted")
        del self.stored[path]

    @property
    def attempts(self) -> set[str]:
        return {path.rpartition("/")[0] for path in self.stored} - {""}


def swept(brokers: Brokers, objects: Objects, location: str = LOCATION, *, force: bool = False) -> Swept:
    return sweep_location(brokers, objects, location, now_ms=NOW_MS, force=force)


def test_unreferenced_objects_go_and_referenced_ones_stay() -> None:
    brokers, objects = Brokers({path_of(1)}), Objects()
    objects.put(path_of(1), whole=True)
    objects.put(path_of(2))
    assert swept(brokers, objects).directories == 1
    assert objects.attempts == {path_of(1)}


def test_an_attempt_that_begins_while_objects_are_listed_keeps_them() -> None:
    brokers, objects = Brokers(begins=path_of(1)), Objects()
    objects.put(path_of(1))
    assert swept(brokers, objects).directories == 0
    assert objects.attempts == {path_of(1)}


def test_another_clusters_location_loses_nothing_even_by_force() -> None:
    brokers, objects = Brokers(recorded={"a": path_of(1)}), Objects({MARKER_NAME: encode_marker(ANOTHERS)})
    objects.put(path_of(1), whole=True)
    objects.put(path_of(2))
    for force in (False, True):
        with pytest.raises(SweepRefused, match="another cluster's"):
            swept(brokers, objects, force=force)
    assert objects.attempts == {path_of(1), path_of(2)}
    assert brokers.recorded


def test_a_location_without_a_mark_is_swept_by_force_alone() -> None:
    brokers, objects = Brokers(), Objects({})
    assert swept(brokers, objects).directories == 0
    objects.put(path_of(2))
    with pytest.raises(SweepRefused, match="--force"):
        swept(brokers, objects)
    assert objects.attempts == {path_of(2)}
    assert swept(brokers, objects, force=True).directories == 1


def test_deletions_that_fail_hide_none_of_the_others() -> None:
    recorded = {f"delete-{number:02}": path_of(number) for number in range(1, 3 * PAGE)}
    brokers, objects = Brokers(recorded=dict(recorded)), Objects()
    for path in recorded.values():
        objects.put(path, whole=True)
    objects.stuck = {path_of(number) for number in range(1, PAGE + 2)}
    found = swept(brokers, objects, force=True)
    assert set(brokers.recorded.values()) == objects.stuck
    assert found.deletions == len(recorded) - len(objects.stuck)


@pytest.mark.parametrize("location", [LOCATION, f"{LOCATION}/"])
def test_a_slash_at_the_end_of_a_location_hides_no_deletion(location: str) -> None:
    brokers, objects = Brokers(recorded={"a": path_of(1)}), Objects()
    objects.put(path_of(1), whole=True)
    assert swept(brokers, objects, location).deletions == 1
    assert not objects.attempts


def test_nothing_goes_while_brokers_cannot_tell_of_every_topic() -> None:
    brokers, objects = Brokers(complete=False), Objects()
    objects.put(path_of(1))
    with pytest.raises(SweepRefused, match="sweep again"):
        swept(brokers, objects, force=True)
    assert objects.attempts == {path_of(1)}

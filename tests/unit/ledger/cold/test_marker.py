"""A location belongs to one cluster: whoever comes second is told so, and nothing of the first one's goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from magnetar.ledger.cold.layout import parse_attempt_path
from magnetar.ledger.cold.marker import MARKER_NAME, LocationNotOurs, check, claim, encode_marker, owner_of
from magnetar.ledger.cold.objects import NoSuchObject

OURS, ANOTHERS = b"o" * 16, b"a" * 16


@dataclass
class Objects:
    stored: dict[str, bytes] = field(default_factory=dict)
    after_put: Callable[[], None] = lambda: None

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path not in self.stored:
            raise NoSuchObject(path)
        return self.stored[path][offset : offset + length]

    def put_bytes(self, path: str, data: bytes) -> None:
        self.stored[path] = data
        self.after_put()


def test_the_first_job_marks_a_location_and_the_next_ones_leave_the_mark() -> None:
    store = Objects()
    assert owner_of(store) is None
    claim(store, OURS)
    assert owner_of(store) == OURS
    store.after_put = lambda: pytest.fail("it is marked already")
    claim(store, OURS)
    check(store, OURS)


def test_another_clusters_location_is_neither_written_nor_swept() -> None:
    store = Objects({MARKER_NAME: encode_marker(ANOTHERS)})
    with pytest.raises(LocationNotOurs, match=r"another cluster's.*location of its own"):
        claim(store, OURS)
    for may_lack in (False, True):
        with pytest.raises(LocationNotOurs, match=ANOTHERS.hex()):
            check(store, OURS, may_lack=may_lack)
    with pytest.raises(LocationNotOurs, match="not told"):
        check(store, b"")
    assert store.stored == {MARKER_NAME: encode_marker(ANOTHERS)}


def test_overwritten_mark_is_detected_by_its_cluster() -> None:
    store = Objects()
    store.after_put = lambda: store.stored.update({MARKER_NAME: encode_marker(ANOTHERS)})
    with pytest.raises(LocationNotOurs):
        claim(store, OURS)


def test_unmarked_location_is_swept_only_on_request() -> None:
    with pytest.raises(LocationNotOurs, match="--force"):
        check(Objects(), OURS)
    check(Objects(), OURS, may_lack=True)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"format_version": 1}', b'{"format_version": 1, "instance": "xy"}'],
)
def test_empty_mark_has_no_owner(data: bytes) -> None:
    store = Objects({MARKER_NAME: data})
    for act in (claim, check):
        with pytest.raises(LocationNotOurs, match="cannot be read"):
            act(store, OURS)
    assert store.stored[MARKER_NAME] == data


@pytest.mark.parametrize(
    "data",
    [b'{"format_version": 2, "instance": "' + b"6f" * 16 + b'"}', b'{"format_version": 1, "instance": ""}'],
)
def test_a_newer_releases_mark_is_left_to_it(data: bytes) -> None:
    with pytest.raises(LocationNotOurs, match="newer release"):
        check(Objects({MARKER_NAME: data}), OURS, may_lack=True)


def test_the_mark_is_no_attempts_object() -> None:
    assert parse_attempt_path(MARKER_NAME.rpartition("/")[0]) is None
    assert MARKER_NAME.startswith("_"), "Spark and DuckDB skip it"

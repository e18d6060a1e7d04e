"""Which objects of a location may go: never one that a ledger names, that is young, or that is nobody's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.layout import MANIFEST_NAME, attempt_path, part_name
from magnetar.ledger.cold.sweep import GRACE_MS, LOST_ALWAYS_MAX, UNFINISHED_SUFFIX, to_sweep

TOPIC = TopicName.parse("persistent://public/default/orders")
NOW_MS = 2_000_000_000_000
OLD_MS = NOW_MS - GRACE_MS


def attempt(ledger_id: int, number: int = 1) -> str:
    """Each with a name of its own, as random ones are."""
    return attempt_path(TOPIC, ledger_id, (ledger_id << 64 | number).to_bytes(16, "big"))


def objects(path: str, *, whole: bool = True, modified_ms: int = OLD_MS) -> list[tuple[str, int, int]]:
    names = [part_name(0), part_name(1), *([MANIFEST_NAME] if whole else [])]
    return [(f"{path}/{name}", 10, modified_ms) for name in names]


def test_referenced_objects_stay_at_any_age() -> None:
    kept, lost = attempt(1), attempt(1, 2)
    sweep = to_sweep([*objects(kept), *objects(lost, whole=False)], [kept], complete=True, now_ms=NOW_MS)
    assert [each.path for each in sweep.doomed] == [lost]
    assert (sweep.named, sweep.named_whole, sweep.waiting) == (1, 1, ())
    assert sweep.refused is None
    assert sweep.doubt is None


def test_an_attempt_stays_under_whatever_uri_its_ledger_names_it() -> None:
    kept = attempt(1)
    for named in (f"cold/{kept}", kept.rpartition("/")[2]):
        sweep = to_sweep(objects(kept), [named], complete=True, now_ms=NOW_MS)
        assert (sweep.doomed, sweep.named) == ((), 1)
        lost = to_sweep(objects(kept), [], complete=True, now_ms=NOW_MS)
        assert len(lost.doomed) == 1
        assert not lost.without([named]).doomed


def test_one_young_object_keeps_its_whole_directory() -> None:
    path = attempt(1)
    listing = objects(path, whole=False)
    listing[1] = (listing[1][0], 10, OLD_MS + 1)
    sweep = to_sweep(listing, [], complete=True, now_ms=NOW_MS)
    assert not sweep.doomed
    assert [each.path for each in sweep.waiting] == [path]
    later = to_sweep(listing, [], complete=True, now_ms=NOW_MS + 1)
    assert [each.path for each in later.doomed] == [path]
    assert later.doomed[0].byte_length == 20


def test_partial_write_is_deleted_after_its_directory_is_complete() -> None:
    kept = attempt(1)
    left = f"{kept}/.{part_name(0)}.17-4{UNFINISHED_SUFFIX}"

    def unfinished(*, whole: bool, modified_ms: int) -> tuple[str, ...]:
        listing = [*objects(kept, whole=whole), (left, 3, modified_ms)]
        return to_sweep(listing, [kept], complete=True, now_ms=NOW_MS).unfinished

    assert unfinished(whole=True, modified_ms=OLD_MS) == (left,)
    assert unfinished(whole=True, modified_ms=OLD_MS + 1) == ()
    assert unfinished(whole=False, modified_ms=OLD_MS) == (), "it may be written just now"


def test_a_manifest_goes_before_the_parts_that_it_names() -> None:
    sweep = to_sweep(objects(attempt(1)), [], complete=True, now_ms=NOW_MS)
    assert [each.rpartition("/")[2] for each in sweep.doomed[0].objects] == [
        MANIFEST_NAME,
        part_name(0),
        part_name(1),
    ]
    assert sweep.doomed[0].whole


def test_attempt_started_during_the_listing_stays() -> None:
    began, lost = attempt(1), attempt(2)
    listing = [*objects(began, whole=False), *objects(lost, whole=False)]
    sweep = to_sweep(listing, [], complete=True, now_ms=NOW_MS, grace_ms=0)
    assert [each.path for each in sweep.doomed] == [began, lost]
    assert [each.path for each in sweep.without([began]).doomed] == [lost]


def test_objects_of_no_attempt_are_kept() -> None:
    strangers = [
        ("README.txt", 1, 0),
        ("public/default/orders/ledger=1/part-00000.parquet", 1, 0),
        ("public/default/orders/ledger=x/attempt=00/part-00000.parquet", 1, 0),
        (f"{attempt(1)}/below/part-00000.parquet", 1, 0),
    ]
    sweep = to_sweep(strangers, [], complete=True, now_ms=NOW_MS)
    assert (sweep.doomed, sweep.waiting) == ((), ())


def test_nothing_goes_while_not_every_topic_could_be_asked() -> None:
    sweep = to_sweep(objects(attempt(1)), [], complete=False, now_ms=NOW_MS)
    assert not sweep.doomed
    assert len(sweep.waiting) == 1
    assert "sweep again" in str(sweep.refused)


def test_a_location_whose_complete_ledgers_are_all_unknown_is_in_doubt() -> None:
    sweep = to_sweep(objects(attempt(1)), [], complete=True, now_ms=NOW_MS)
    assert "another cluster" in str(sweep.doubt)
    assert len(sweep.doomed) == 1, "an operator may say that it goes"


def test_leftovers_without_a_manifest_are_never_in_doubt() -> None:
    listing = [each for number in range(50) for each in objects(attempt(number), whole=False)]
    assert to_sweep(listing, [], complete=True, now_ms=NOW_MS).doubt is None


def test_many_unknown_complete_ledgers_beside_few_known_ones_are_in_doubt() -> None:
    known = [attempt(number) for number in range(100, 110)]

    def doubt(lost: int) -> str | None:
        listing = [each for number in range(lost) for each in objects(attempt(number))]
        listing += [each for path in known for each in objects(path)]
        return to_sweep(listing, known, complete=True, now_ms=NOW_MS).doubt

    assert doubt(LOST_ALWAYS_MAX) is None
    assert doubt(LOST_ALWAYS_MAX + 1) is not None


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3), st.integers(-2, 2))),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 3))),
    st.booleans(),
)
def test_every_object_is_kept_or_doomed_as_its_directory_is(
    written: list[tuple[int, int, int, int]], named: set[tuple[int, int]], complete: bool
) -> None:
    listing = {
        f"{attempt(ledger, number)}/{part_name(part)}": (10, OLD_MS + age)
        for ledger, number, part, age in written
    }
    keep = {attempt(ledger, number) for ledger, number in named}
    sweep = to_sweep(
        [(path, size, ms) for path, (size, ms) in listing.items()], keep, complete=complete, now_ms=NOW_MS
    )
    newest: dict[str, int] = {}
    for path, (_, modified_ms) in listing.items():
        directory = path.rpartition("/")[0]
        newest[directory] = max(newest.get(directory, 0), modified_ms)
    expected = {path for path, ms in newest.items() if path not in keep and ms <= OLD_MS and complete}
    assert {each.path for each in sweep.doomed} == expected
    assert {path for each in sweep.doomed for path in each.objects} == {
        path for path in listing if path.rpartition("/")[0] in expected
    }
    assert {each.path for each in sweep.waiting} == newest.keys() - keep - expected

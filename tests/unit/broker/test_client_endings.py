"""The record of ended clients is bounded, forgets, and counts what repeats."""

from __future__ import annotations

from magnetar.broker.client_endings import (
    CONNECTION_ENDS_MAX,
    ENDS_MAX,
    ENDS_OF_TOPIC_MAX,
    KEPT_S,
    TEXT_CHARS_MAX,
    ClientEnd,
    ClientEndings,
    ClientKind,
    EndCode,
)


def end(topic: str, name: str, at_ms: int = 0, address: str = "10.0.0.1:5", **more: str) -> ClientEnd:
    return ClientEnd(
        kind=ClientKind.PRODUCER,
        code=EndCode.REFUSED,
        at_ms=at_ms,
        address=address,
        topic=topic,
        name=name,
        **more,  # type: ignore[arg-type]
    )


def test_one_topic_displaces_its_own_ends_alone() -> None:
    endings = ClientEndings()
    endings.note(end("quiet", "p"))
    for number in range(3 * ENDS_OF_TOPIC_MAX):
        endings.note(end("busy", f"p{number}", number))
    found = endings.of_topic("busy", 0)
    assert [each.name for each in found[:2]] == [f"p{3 * ENDS_OF_TOPIC_MAX - n}" for n in (1, 2)]
    assert (len(found), len(endings.of_topic("quiet", 0))) == (ENDS_OF_TOPIC_MAX, 1)


def test_ends_of_connections_are_bounded_on_their_own() -> None:
    endings = ClientEndings()
    for number in range(2 * CONNECTION_ENDS_MAX):
        endings.note(end("", f"{number}"))
    assert len(endings) == CONNECTION_ENDS_MAX


def test_the_oldest_ends_of_a_broker_are_dropped_first() -> None:
    endings = ClientEndings()
    for number in range(ENDS_MAX + 100):
        endings.note(end(f"t{number}", "p", number))
    assert len(endings) == ENDS_MAX
    assert (endings.of_topic("t99", 0), len(endings.of_topic("t100", 0))) == ([], 1)
    assert [each.topic for each in endings.all(0)[:2]] == [f"t{ENDS_MAX + 99}", f"t{ENDS_MAX + 98}"]


def test_ends_are_forgotten_after_their_time() -> None:
    endings = ClientEndings()
    endings.note(end("t", "old", 1))
    endings.note(end("t", "new", KEPT_S * 1000))
    assert [each.name for each in endings.of_topic("t", KEPT_S * 1000 + 2)] == ["new"]
    assert endings.all(3 * KEPT_S * 1000) == []
    endings.note(end("t", "again", 3 * KEPT_S * 1000))
    assert len(endings.of_topic("t", 3 * KEPT_S * 1000)) == 1


def test_what_repeats_is_one_end_with_a_count() -> None:
    endings = ClientEndings()
    for number in range(5):
        endings.note(end("t", "p", number, address=f"10.0.0.1:{number}"))
    endings.note(end("t", "p", 5, address="10.0.0.2:1"))
    other, first = endings.of_topic("t", 5)
    assert (other.times, first.times, first.since_ms, first.at_ms) == (1, 5, 0, 4)
    assert len(endings) == 2


def test_texts_of_clients_are_cut() -> None:
    kept = end("t" * 10_000, "n" * 10_000, message="m" * 10_000)
    assert len(kept.topic) == len(kept.name) == len(kept.message) == TEXT_CHARS_MAX

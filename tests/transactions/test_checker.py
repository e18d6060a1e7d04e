"""The checker finds each anomaly that is planted into a small history, and nothing in the clean one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.transactions.checker import ANOMALIES, check, summary
from tests.transactions.history import Answer, History, Position, Recorder, Txn, read_history

Event = dict[str, Any]

IN, OUT, ALSO = "in", "out", "also"
"""Topics: workers consume the first, and publish to the others."""
ONE, TWO, THREE = (0, 0), (0, 1), (0, 2)
"""Transactions of the history below: committed, aborted, committed."""


class Story:
    """Records a history by hand; each event is a tenth of a second after the one before."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[Event] = []
        self._recorder = Recorder(self._tick, lambda line: self.events.append(json.loads(line)))

    def _tick(self) -> float:
        self.now = round(self.now + 0.1, 3)
        return self.now

    def call(self, kind: str, worker: str = "w", answer: Answer | None = Answer.OK, **fields: Any) -> None:
        answered: Event = {name: fields.pop(name) for name in ("position", "error") if name in fields}
        if kind == "new":
            answered["txn"] = fields.pop("txn")
        number = self._recorder.begin(kind, worker, **fields)
        if answer is not None:
            self._recorder.answer(number, answer, **answered)

    def note(self, kind: str, **fields: Any) -> None:
        self._recorder.note(kind, **fields)

    def send(self, message: str, topic: str, entry: int, txn: Txn | None = None, **fields: Any) -> None:
        self.call("send", topic=topic, message=message, txn=txn, position=(1, entry, -1), **fields)

    def deliver(self, message: str, topic: str, entry: int, **fields: Any) -> None:
        self.note("delivery", reader="r", topic=topic, message=message, position=(1, entry, -1), **fields)

    def transfer(self, txn: Txn, message: str, entry: int, *, commit: bool, made: str) -> None:
        """Consume one input and publish an output to each of the other topics, in one transaction."""
        self.call("new", txn=txn, ttl_s=60)
        self.deliver(message, IN, int(message[1:]), subscription="s")
        for slot, topic in enumerate((OUT, ALSO)):
            self.send(
                f"{made}{slot}", topic, entry, txn, inputs=(message,), slot=slot, producer="p", sequence=entry
            )
        self.call("ack", topic=IN, subscription="s", messages=(message,), txn=txn)
        self.call("end", txn=txn, commit=commit)


def story() -> Story:
    """Two inputs; the second one is consumed by a transaction that aborts, and then by another."""
    told = Story()
    for number in range(2):
        told.send(f"i{number}", IN, number, value=None)
    told.transfer(ONE, "i0", 0, commit=True, made="a")
    told.transfer(TWO, "i1", 1, commit=False, made="b")
    told.transfer(THREE, "i1", 2, commit=True, made="c")
    for message, entry in (("a0", 0), ("c0", 2)):
        told.deliver(message, OUT, entry, path="reader")
    told.note("limit", topic=OUT, limit=(1, 2), last=(1, 2))
    told.note("watermark", coordinator=0, number=2)
    told.note("quiet")
    told.note("content", topic=IN, messages=[((1, 0, -1), "i0"), ((1, 1, -1), "i1")])
    told.note("content", topic=OUT, messages=[((1, 0, -1), "a0"), ((1, 2, -1), "c0")])
    told.note("content", topic=ALSO, messages=[((1, 0, -1), "a1"), ((1, 2, -1), "c1")])
    told.note("left", topic=IN, subscription="s", messages=(), backlog=0)
    return told


def history_of(events: list[Event]) -> History:
    return read_history(json.dumps(event) + "\n" for event in events)


def one(events: list[Event], kind: str, **fields: Any) -> Event:
    """The only event with these fields."""
    wanted = json.loads(json.dumps({"kind": kind, **fields}))
    (found,) = [event for event in events if wanted.items() <= event.items()]
    return found


def answer_of(events: list[Event], call: Event) -> Event:
    return one(events, "answer", call=call["call"])


def without(events: list[Event], event: Event) -> list[Event]:
    return [each for each in events if each is not event]


def content_of(events: list[Event], topic: str) -> list[list[Any]]:
    found: list[list[Any]] = one(events, "content", topic=topic)["messages"]
    return found


def test_finds_nothing_in_a_clean_history() -> None:
    assert check(history_of(story().events), standstill_s=1) == []


def test_counts_what_a_history_shows() -> None:
    counts = summary(history_of(story().events))
    assert (counts["committed"], counts["aborted"], counts["unknown"]) == (2, 1, 0)
    assert (counts["messages in transactions"], counts["acknowledgements in transactions"]) == (6, 3)


def test_an_unknown_outcome_is_what_its_effects_show() -> None:
    for commit, fate in ((THREE, "committed"), (TWO, "aborted")):
        events = story().events
        call = one(events, "end", txn=commit)
        call["commit"] = True
        events = without(events, answer_of(events, call))
        assert check(history_of(events)) == []
        assert summary(history_of(events))["calls without an answer"] == 1, fate


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    lines = [json.dumps(event) + "\n" for event in story().events]
    assert len(read_history([*lines[:3], lines[3][:9]]).sends) == len(read_history(lines[:3]).sends)


def test_a_second_answer_and_an_unknown_event_are_refused() -> None:
    events = story().events
    with pytest.raises(ValueError, match="call 1 has two answers"):
        history_of([*events, one(events, "answer", call=1)])
    with pytest.raises(ValueError, match="unknown kind of event 'rumor'"):
        history_of([{"kind": "rumor"}])


# Anomalies: each function plants one.


def aborted_read(told: Story) -> None:
    told.deliver("b0", OUT, 1, path="redelivery")


def output_of_a_transaction_without_a_commit(told: Story) -> None:
    told.call("new", txn=(0, 9), ttl_s=60)
    told.send("x", OUT, 9, (0, 9))
    told.deliver("x", OUT, 9)


def dirty_read(told: Story) -> None:
    end = one(told.events, "end", txn=list(ONE))
    told.events.append(
        {
            "kind": "delivery",
            "at": end["at"] - 0.05,
            "reader": "r2",
            "topic": OUT,
            "message": "a0",
            "position": [1, 0, -1],
        }
    )


def missing_output(told: Story) -> None:
    content_of(told.events, ALSO).pop()


def missing_acknowledgement(told: Story) -> None:
    one(told.events, "left").update(messages=["i1"], backlog=1)


def output_of_an_aborted_transaction(told: Story) -> None:
    content_of(told.events, OUT).insert(1, [[1, 1, -1], "b0"])


def acknowledgement_of_an_aborted_transaction(told: Story) -> None:
    told.send("i2", IN, 2)
    content_of(told.events, IN).append([[1, 2, -1], "i2"])
    told.transfer((0, 9), "i2", 9, commit=False, made="d")


def lost_message(told: Story) -> None:
    told.send("plain", OUT, 7)


def stored_though_refused(told: Story) -> None:
    told.call("send", answer=Answer.REFUSED, topic=OUT, message="late", txn=THREE, error="NotAllowedError")
    content_of(told.events, OUT).append([[1, 3, -1], "late"])


def two_answers(told: Story) -> None:
    told.call("end", txn=ONE, commit=False)


def other_outcome_of_a_topic(told: Story) -> None:
    told.note("outcome", by=f"topic {OUT}", txn=THREE, commit=False)


def commit_of_what_was_refused_for_the_other_action(told: Story) -> None:
    told.call("end", answer=Answer.REFUSED, txn=THREE, commit=True, error="InvalidTxnStatus")


def commit_out_of_nothing(told: Story) -> None:
    told.note("outcome", by="coordinator 0 after a takeover", txn=TWO, commit=True)


def second_output(told: Story) -> None:
    told.send("a0-again", OUT, 3, inputs=("i0",), slot=0)
    content_of(told.events, OUT).append([[1, 3, -1], "a0-again"])


def foreign_message(told: Story) -> None:
    content_of(told.events, OUT).append([[1, 3, -1], "from elsewhere"])


def conflict(told: Story) -> None:
    told.call("new", txn=(0, 9), ttl_s=60)
    told.call("ack", topic=IN, subscription="s", messages=("i0",), txn=(0, 9))
    told.call("end", txn=(0, 9), commit=True)


def producer_out_of_order(told: Story) -> None:
    content = content_of(told.events, OUT)
    content[0][1], content[1][1] = content[1][1], content[0][1]


def reader_out_of_order(told: Story) -> None:
    told.deliver("a0", OUT, 0, path="reader")


def overtaking(told: Story) -> None:
    told.call("new", txn=(0, 9), ttl_s=60)
    told.send("x", OUT, 9, (0, 9))
    told.send("after", OUT, 10)
    told.deliver("after", OUT, 10)
    told.call("end", txn=(0, 9), commit=True)
    content_of(told.events, OUT).extend(([[1, 9, -1], "x"], [[1, 10, -1], "after"]))


def standing_limit(told: Story) -> None:
    for _ in range(20):
        told.note("limit", topic=OUT, limit=(1, 0), last=(1, 2))


def endless_transaction(told: Story) -> None:
    told.note("unfinished", party="coordinator 0", txn=THREE)


def late_send(told: Story) -> None:
    told.send("late", OUT, 3, THREE)
    content_of(told.events, OUT).append([[1, 3, -1], "late"])


def stale_limit(told: Story) -> None:
    told.note("limit", topic=OUT, limit=(1, 1), last=(1, 2), began=told.now)


def forgotten_outcome(told: Story) -> None:
    told.call("end", answer=Answer.REFUSED, txn=THREE, commit=True, error="TransactionNotFound")


def id_given_twice(told: Story) -> None:
    told.call("new", txn=ONE, ttl_s=60)


def watermark_above_an_open_one(told: Story) -> None:
    told.call("new", txn=(0, 3), ttl_s=60)
    told.note("watermark", coordinator=0, number=3)
    told.call("end", txn=(0, 3), commit=False)


def stored_twice(told: Story) -> None:
    content_of(told.events, OUT).append([[1, 3, -1], "c0"])


def sequence_stored_twice(told: Story) -> None:
    told.send("c0-resent", OUT, 3, producer="p", sequence=2)
    content_of(told.events, OUT).append([[1, 3, -1], "c0-resent"])


def resend_after_an_abort_dropped(told: Story) -> None:
    told.send("b0-resent", OUT, -1, producer="p", sequence=1)


def wrong_backlog(told: Story) -> None:
    one(told.events, "left")["backlog"] = 1


def stuck_unacknowledged(told: Story) -> None:
    one(told.events, "left")["unacked"] = 2


def stuck_pending(told: Story) -> None:
    one(told.events, "left")["pending"] = 1


def changed_sum(told: Story) -> None:
    one(told.events, "send", message="i0")["value"] = 5
    one(told.events, "send", message="a0")["value"] = 4


PLANTED: list[tuple[Callable[[Story], None], str]] = [
    (
        aborted_read,
        r"aborted read: r got 'b0' of aborted transaction \(0, 1\) at \(1, 1, -1\) of out by redelivery",
    ),
    (output_of_a_transaction_without_a_commit, r"aborted read: r got 'x' of aborted transaction \(0, 9\)"),
    (dirty_read, r"dirty read: r2 got 'a0' of \(0, 0\) at .* before a commit was asked for"),
    (missing_output, r"torn commit: 'c1' of committed transaction \(0, 2\) is not in also"),
    (
        missing_acknowledgement,
        r"torn commit: 'i1' was acknowledged by committed transaction \(0, 2\) and is still in s",
    ),
    (
        output_of_an_aborted_transaction,
        r"outcome changed: transaction \(0, 1\) was committed according to 'b0' at",
    ),
    (
        acknowledgement_of_an_aborted_transaction,
        r"lost input: 'i2' at \(1, 2, -1\) of in is neither left in s",
    ),
    (lost_message, r"lost message: 'plain' was confirmed and is not in out"),
    (stored_though_refused, r"refused message: 'late' was refused \(NotAllowedError\) and is in out"),
    (
        two_answers,
        r"outcome changed: transaction \(0, 0\) was committed according to .* and aborted according to",
    ),
    (other_outcome_of_a_topic, r"outcome changed: .* aborted according to topic out"),
    (
        commit_of_what_was_refused_for_the_other_action,
        r"aborted according to InvalidTxnStatus for a commit by w",
    ),
    (
        commit_out_of_nothing,
        r"outcome changed: transaction \(0, 1\) was committed according to coordinator 0",
    ),
    (second_output, r"double output: 'a0' of \(0, 0\) and 'a0-again' of None are both output 0 of i0"),
    (foreign_message, r"foreign message: 'from elsewhere' is at"),
    (conflict, r"conflict: 'i0' was acknowledged in s of in by both \(0, 0\) and \(0, 9\)"),
    (producer_out_of_order, r"order: 'a0' at \(1, 2, -1\) of out comes after 'c0', which w sent later"),
    (reader_out_of_order, r"order: r got 'a0' at \(1, 0, -1\) of out after 'c0'"),
    (overtaking, r"overtaking: r got 'after' at \(1, 10, -1\) of out .* while transaction \(0, 9\) with 'x'"),
    (standing_limit, r"liveness: the limit of out stood at \(1, 0\) for 1\.\d s after the last fault"),
    (endless_transaction, r"liveness: coordinator 0 still has transaction \(0, 2\)"),
    (late_send, r"late send: out accepted 'late' in transaction \(0, 2\) at .* though its end was answered"),
    (
        stale_limit,
        r"stale limit: a read of out at .* stopped before 'c0' of \(0, 2\), whose end was answered",
    ),
    (forgotten_outcome, r"outcome forgotten: w was told TransactionNotFound for transaction \(0, 2\)"),
    (id_given_twice, r"ids: transaction id \(0, 0\) was given to w and to w"),
    (
        watermark_above_an_open_one,
        r"ids: the low watermark of coordinator 0 was 3 .* transaction \(0, 3\) was open",
    ),
    (stored_twice, r"duplicate: 'c0' is 2 times in out"),
    (sequence_stored_twice, r"duplicate: sequence 2 of p is in out as 'c0' at .* and as 'c0-resent'"),
    (resend_after_an_abort_dropped, r"duplicate: 'b0-resent' was taken for a duplicate of 'b0' of aborted"),
    (wrong_backlog, r"counts: s of in has a backlog of 1, and 0 messages are left"),
    (stuck_unacknowledged, r"counts: s of in counts 2 unacknowledged messages"),
    (stuck_pending, r"counts: s of in has 1 pending acknowledgements of no open transaction"),
    (changed_sum, r"sum: transaction \(0, 0\) made 4 of 5 in i0"),
]


@pytest.mark.parametrize(("plant", "sentence"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_finds_a_planted_anomaly(plant: Callable[[Story], None], sentence: str) -> None:
    told = story()
    plant(told)
    broken = check(history_of(told.events), standstill_s=1.0)
    assert broken
    assert any(re.match(f".*{sentence}", each) for each in broken), broken


def test_every_kind_of_anomaly_is_planted() -> None:
    assert len(PLANTED) > len(ANOMALIES)


def test_a_position_is_the_same_in_a_history_and_in_its_lines() -> None:
    events = story().events
    position: Position = (1, 0, -1)
    assert history_of(events).content[OUT][0] == (position, "a0")

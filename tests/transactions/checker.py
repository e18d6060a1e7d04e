"""The promises of transactions, each a function that returns a sentence for every place where it is broken.

All are pure functions of a complete history (`history.py`). What the history does not tell, such as the
outcome of a call without an answer, counts in favor of the system unless an effect shows it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from tests.transactions.facts import Facts, Fate, Transaction
from tests.transactions.history import NOT_FOUND, Delivery, History, Position, Send, Txn

IN_ORDER: Final = frozenset({"reader", "compacted", "peek", "parquet"})
"""Paths on which one reader gets messages in the order of their positions, each once."""


def aborted_reads(facts: Facts) -> list[str]:
    """Returns deliveries of messages whose transaction was aborted."""
    broken = []
    for delivery, send in _delivered(facts):
        if send.txn is not None and facts.fate_of(send.txn) is Fate.ABORTED:
            broken.append(
                f"aborted read: {delivery.reader} got {delivery.message!r} of aborted transaction {send.txn} "
                f"at {delivery.position} of {delivery.topic} by {delivery.path}"
            )
    return broken


def dirty_reads(facts: Facts) -> list[str]:
    """Returns deliveries of messages before a commit of their transaction was asked for."""
    broken = []
    for delivery, send in _delivered(facts):
        if send.txn is None or facts.fate_of(send.txn) is Fate.ABORTED:
            continue
        asked = facts.transactions[send.txn].commit_asked_at
        if delivery.at < asked:
            broken.append(
                f"dirty read: {delivery.reader} got {delivery.message!r} of {send.txn} at "
                f"{delivery.at:.3f} s by {delivery.path}, before a commit was asked for at {asked:.3f} s"
            )
    return broken


def torn_outcomes(facts: Facts) -> list[str]:
    """Returns parts of transactions without effect although committed, or with effect although aborted."""
    broken = []
    for each in facts.transactions.values():
        if each.fate is Fate.COMMITTED:
            broken += _missing_parts(facts, each)
        elif each.fate is Fate.ABORTED:
            broken += _effects_of_aborted(facts, each)
    for send in facts.history.sends:
        plain = send.txn is None and send.ok and send.topic in facts.history.content
        if plain and send.message not in facts.places:
            broken.append(f"lost message: {send.message!r} was confirmed and is not in {send.topic}")
        if send.answer == "refused" and send.message in facts.places:
            broken.append(
                f"refused message: {send.message!r} was refused ({send.error}) and is in {send.topic}"
            )
    return broken


def outcome_changes(facts: Facts) -> list[str]:
    """Returns transactions of which two parties, or a party and an effect, tell different outcomes."""
    broken = []
    for each in facts.transactions.values():
        committed = next((claim.by for claim in each.claims if claim.commit), None)
        aborted = next((claim.by for claim in each.claims if not claim.commit), None)
        if committed is not None and aborted is not None:
            broken.append(
                f"outcome changed: transaction {each.txn} was committed according to {committed}, and "
                f"aborted according to {aborted}"
            )
        elif committed is not None and each.commit_asked_at == math.inf:
            broken.append(
                f"outcome changed: transaction {each.txn} was committed according to {committed}, though no "
                f"commit was ever asked for"
            )
    return broken


def lost_inputs(facts: Facts) -> list[str]:
    """Returns messages that left a subscription though no acknowledgement is in force for them."""
    broken = []
    taken: dict[tuple[str, str], set[str]] = defaultdict(set)
    for ack in facts.history.acks:
        maybe = ack.txn is not None and facts.fate_of(ack.txn) is Fate.UNKNOWN
        if ack.answer != "refused" and (maybe or facts.fate_of(ack.txn) is Fate.COMMITTED):
            taken[ack.topic, ack.subscription].update(ack.messages)
    for (topic, subscription), left in facts.left.items():
        there = set(left.messages) | taken[topic, subscription]
        for position, message in facts.history.content.get(topic, ()):
            if message not in there:
                broken.append(
                    f"lost input: {message!r} at {position} of {topic} is neither left in {subscription} nor "
                    f"acknowledged by a committed transaction or a plain acknowledgement"
                )
    return broken


def double_outputs(facts: Facts) -> list[str]:
    """Returns inputs from which two committed transactions, or one twice, made the same output."""
    made: dict[tuple[tuple[str, ...], int], str] = {}
    broken = []
    for message, places in sorted(facts.places.items()):
        send = facts.send_of.get(message)
        if send is None:
            broken.append(f"foreign message: {message!r} is at {places[0]} and was never sent")
            continue
        if send.inputs:
            first = made.setdefault((send.inputs, send.slot), message)
            if first != message:
                broken.append(
                    f"double output: {first!r} of {facts.send_of[first].txn} and {message!r} of {send.txn} "
                    f"are both output {send.slot} of {', '.join(send.inputs)}"
                )
    return broken


def conflicts(facts: Facts) -> list[str]:
    """Returns messages that two committed transactions acknowledged in one subscription."""
    broken = []
    by: dict[tuple[str, str, str], Txn] = {}
    for each in facts.with_fate(Fate.COMMITTED):
        for ack in each.acks:
            for message in ack.messages if ack.ok else ():
                first = by.setdefault((ack.topic, ack.subscription, message), each.txn)
                if first != each.txn:
                    broken.append(
                        f"conflict: {message!r} was acknowledged in {ack.subscription} of {ack.topic} by "
                        f"both {first} and {each.txn}, and both were committed"
                    )
    return broken


def disorder(facts: Facts) -> list[str]:
    """Returns messages that are not in the order of their producer, or that a reader got out of order."""
    broken = []
    for topic, entries in facts.history.content.items():
        last: Position = (-1, -1, -1)
        newest: dict[str, Send] = {}
        for position, message in entries:
            if position <= last:
                broken.append(f"order: {message!r} at {position} of {topic} was read after {last}")
            last = position
            send = facts.send_of.get(message)
            if send is None:
                continue
            before = newest.get(send.worker)
            # A call that began after the end of another one is later.
            if before is not None and send.end < before.begin:
                broken.append(
                    f"order: {message!r} at {position} of {topic} comes after {before.message!r}, which "
                    f"{send.worker} sent later"
                )
            if before is None or send.begin > before.begin:
                newest[send.worker] = send
    at: dict[tuple[str, str], Delivery] = {}
    for delivery in facts.history.deliveries:
        if delivery.path in IN_ORDER:
            earlier = at.get((delivery.reader, delivery.topic))
            if earlier is not None and delivery.position <= earlier.position:
                broken.append(
                    f"order: {delivery.reader} got {delivery.message!r} at {delivery.position} of "
                    f"{delivery.topic} after {earlier.message!r} at {earlier.position}"
                )
            at[delivery.reader, delivery.topic] = delivery
    return broken


def overtakings(facts: Facts) -> list[str]:
    """Returns deliveries of messages behind one whose transaction was open then."""
    opened: dict[str, list[tuple[float, Position, float, Send]]] = defaultdict(list)
    slack_s = facts.history.clock_error_s
    for each in facts.transactions.values():
        until = each.open_until(slack_s)
        for send in each.sends:
            if send.ok and send.position is not None and send.end < until:
                opened[send.topic].append((send.end, send.position, until, send))
    by_topic: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in facts.history.deliveries:
        by_topic[delivery.topic].append(delivery)
    broken = []
    for topic, deliveries in by_topic.items():
        broken += _overtakings_of(sorted(opened[topic], key=lambda each: each[:3]), deliveries)
    return broken


def _overtakings_of(
    opened: list[tuple[float, Position, float, Send]], deliveries: Iterable[Delivery]
) -> list[str]:
    broken = []
    at = 0
    first: list[tuple[Position, float, str, Send]] = []
    for delivery in sorted(deliveries, key=lambda each: each.at):
        while at < len(opened) and opened[at][0] < delivery.at:
            _, position, until, send = opened[at]
            heapq.heappush(first, (position, until, send.message, send))
            at += 1
        while first and first[0][1] <= delivery.at:
            heapq.heappop(first)
        if first and first[0][0] < delivery.position:
            position, _, message, send = first[0]
            broken.append(
                f"overtaking: {delivery.reader} got {delivery.message!r} at {delivery.position} of "
                f"{delivery.topic} at {delivery.at:.3f} s while transaction {send.txn} with {message!r} at "
                f"{position} was open"
            )
    return broken


def standstills(facts: Facts, bound_s: float) -> list[str]:
    """Returns limits that stood still for over `bound_s` after the faults, and transactions without end."""
    broken = [f"liveness: {party} still has transaction {txn}" for party, txn in facts.history.unfinished]
    since: dict[str, tuple[tuple[int, int], float]] = {}
    told: set[str] = set()
    for each in sorted(facts.history.limits, key=lambda each: each.at):
        if each.limit >= each.last:
            since.pop(each.topic, None)
            continue
        limit, began = since.get(each.topic, (each.limit, each.at))
        if limit != each.limit:
            limit, began = each.limit, each.at
        since[each.topic] = limit, began
        stood = each.at - max(began, facts.history.quiet_at)
        if stood > bound_s and each.topic not in told:
            told.add(each.topic)
            broken.append(
                f"liveness: the limit of {each.topic} stood at {limit} for {stood:.1f} s after the last "
                f"fault, its last entry is {each.last}"
            )
    return broken


def late_sends(facts: Facts) -> list[str]:
    """Returns messages that a topic accepted in a transaction after its end was answered."""
    broken = []
    for each in facts.transactions.values():
        ended = min((end.end for end in each.ends if end.ok), default=math.inf)
        broken += [
            f"late send: {send.topic} accepted {send.message!r} in transaction {each.txn} at "
            f"{send.begin:.3f} s, though its end was answered at {ended:.3f} s"
            for send in each.sends
            if send.ok and send.begin > ended
        ]
    return broken


def stale_limits(facts: Facts) -> list[str]:
    """Returns limits that stand at a message whose transaction was known to have ended before."""
    stored = {
        (send.topic, send.position[0], send.position[1]): send
        for send in facts.history.sends
        if send.txn is not None and send.position is not None
    }
    broken = []
    for each in facts.history.limits:
        ledger_id, entry_id = each.limit
        send = stored.get((each.topic, ledger_id, entry_id + 1))
        if send is None or send.txn is None or each.limit >= each.last:
            continue
        ended = min((end.end for end in facts.transactions[send.txn].ends if end.ok), default=math.inf)
        if ended < each.began < math.inf:
            broken.append(
                f"stale limit: a read of {each.topic} at {each.began:.3f} s stopped before {send.message!r} "
                f"of {send.txn}, whose end was answered at {ended:.3f} s"
            )
    return broken


def forgotten_outcomes(facts: Facts) -> list[str]:
    """Returns ends of transactions that exist and that the coordinator did not know."""
    return [
        f"outcome forgotten: {end.worker} was told {NOT_FOUND} for transaction {end.txn} at {end.end:.3f} s"
        for each in facts.transactions.values()
        for end in each.ends
        if each.new is not None and end.error == NOT_FOUND
    ]


def repeated_ids(facts: Facts) -> list[str]:
    """Returns transaction ids that were given twice, and low watermarks above a transaction that lives."""
    broken = []
    given: dict[Txn, str] = {}
    for new in facts.history.news:
        if new.ok and new.txn is not None:
            if new.txn in given:
                broken.append(
                    f"ids: transaction id {new.txn} was given to {given[new.txn]} and to {new.worker}"
                )
            given[new.txn] = new.worker
    slack_s = facts.history.clock_error_s
    for mark in facts.history.watermarks:
        for each in facts.transactions.values():
            if each.new is None or each.txn[0] != mark.coordinator or each.txn[1] > mark.number:
                continue
            if each.new.end < mark.at < each.open_until(slack_s):
                broken.append(
                    f"ids: the low watermark of coordinator {mark.coordinator} was {mark.number} at "
                    f"{mark.at:.3f} s, when transaction {each.txn} was open"
                )
    return broken


def duplicates(facts: Facts) -> list[str]:
    """Returns messages stored twice, and confirmed ones taken for duplicates of aborted ones."""
    broken = []
    stored: dict[tuple[str, str, int], tuple[str, Position]] = {}
    for topic, entries in facts.history.content.items():
        names = Counter(message for _, message in entries)
        broken += [
            f"duplicate: {message!r} is {count} times in {topic}"
            for message, count in names.items()
            if count > 1
        ]
        for position, message in entries:
            send = facts.send_of.get(message)
            if send is None or send.sequence < 0:
                continue
            first = stored.setdefault((topic, send.producer, send.sequence), (message, position))
            if first[0] != message:
                broken.append(
                    f"duplicate: sequence {send.sequence} of {send.producer} is in {topic} as {first[0]!r} "
                    f"at {first[1]} and as {message!r} at {position}"
                )
    return broken + _lost_to_aborted(facts, stored.keys())


def _lost_to_aborted(facts: Facts, stored: Iterable[tuple[str, str, int]]) -> list[str]:
    known = set(stored)
    aborted = {
        (send.topic, send.producer, send.sequence): send
        for each in facts.with_fate(Fate.ABORTED)
        for send in each.sends
        if send.sequence >= 0
    }
    broken = []
    for send in facts.history.sends:
        identity = send.topic, send.producer, send.sequence
        earlier = aborted.get(identity)
        if earlier is None or earlier is send or identity in known or send.topic not in facts.history.content:
            continue
        if send.ok and facts.fate_of(send.txn) is Fate.COMMITTED:
            broken.append(
                f"duplicate: {send.message!r} was taken for a duplicate of {earlier.message!r} of aborted "
                f"transaction {earlier.txn} (sequence {send.sequence} of {send.producer} on {send.topic})"
            )
    return broken


def wrong_counts(facts: Facts) -> list[str]:
    """Returns subscriptions whose figures do not agree with what is left in them."""
    broken = []
    for left in facts.history.left:
        where = f"{left.subscription} of {left.topic}"
        if left.backlog not in (-1, len(left.messages)):
            broken.append(
                f"counts: {where} has a backlog of {left.backlog}, and {len(left.messages)} messages are left"
            )
        if left.unacked:
            broken.append(f"counts: {where} counts {left.unacked} unacknowledged messages without a consumer")
        if left.pending:
            broken.append(
                f"counts: {where} has {left.pending} pending acknowledgements of no open transaction"
            )
    return broken


def created_value(facts: Facts) -> list[str]:
    """Returns transactions with another amount in outputs than in inputs, and a changed sum at the end."""
    broken = []
    for each in facts.with_fate(Fate.COMMITTED):
        outputs = [send for send in each.sends if send.value is not None and send.message in facts.places]
        inputs = {name for send in outputs for name in send.inputs}
        if not inputs or any(name not in facts.send_of for name in inputs):
            continue
        before = sum(facts.send_of[name].value or 0 for name in inputs)
        after = sum(send.value or 0 for send in outputs)
        if before != after:
            broken.append(
                f"sum: transaction {each.txn} made {after} of {before} in {', '.join(sorted(inputs))}"
            )
    sources = [send for send in facts.history.sends if send.value is not None and not send.inputs and send.ok]
    if sources and facts.left:
        began = sum(send.value or 0 for send in sources)
        ended = sum(
            facts.send_of[message].value or 0
            for left in facts.history.left
            for message in left.messages
            if message in facts.send_of
        )
        if began != ended:
            broken.append(
                f"sum: the messages left at the end hold {ended}, those of the beginning held {began}"
            )
    return broken


ANOMALIES: Final[tuple[Callable[[Facts], list[str]], ...]] = (
    aborted_reads,
    dirty_reads,
    torn_outcomes,
    outcome_changes,
    lost_inputs,
    double_outputs,
    conflicts,
    disorder,
    overtakings,
    late_sends,
    stale_limits,
    repeated_ids,
    duplicates,
    wrong_counts,
    created_value,
)
"""All of them but `standstills`, which has a bound, and `forgotten_outcomes`."""


def check(
    history: History, *, standstill_s: float = math.inf, outcomes_are_remembered: bool = True
) -> list[str]:
    """Returns a sentence for everything that is wrong in a complete history.

    Apache Pulsar forgets the outcome of a transaction as soon as it is over, and tells that it is not found.
    """
    facts = Facts(history)
    broken = [sentence for find in ANOMALIES for sentence in find(facts)]
    if outcomes_are_remembered:
        broken += forgotten_outcomes(facts)
    return broken + standstills(facts, standstill_s)


def summary(history: History) -> Counter[str]:
    """Counts transactions by fate, and events by kind, to show that a history is worth checking."""
    facts = Facts(history)
    counts = Counter({fate.value: len(facts.with_fate(fate)) for fate in Fate})
    counts["deliveries"] = len(history.deliveries)
    counts["messages in transactions"] = sum(send.txn is not None for send in history.sends)
    counts["acknowledgements in transactions"] = sum(ack.txn is not None for ack in history.acks)
    counts["calls without an answer"] = sum(
        call.answer == "unknown"
        for calls in (history.news, history.sends, history.acks, history.ends)
        for call in calls
    )
    return counts


def _delivered(facts: Facts) -> Iterable[tuple[Delivery, Send]]:
    for delivery in facts.history.deliveries:
        send = facts.send_of.get(delivery.message)
        if send is not None:
            yield delivery, send


def _missing_parts(facts: Facts, transaction: Transaction) -> list[str]:
    why = next((claim.by for claim in transaction.claims if claim.commit), "")
    broken = [
        f"torn commit: {send.message!r} of committed transaction {transaction.txn} is not in {send.topic} "
        f"(committed according to {why})"
        for send in transaction.sends
        if send.ok and send.topic in facts.history.content and send.message not in facts.places
    ]
    for ack in transaction.acks:
        left = facts.left.get((ack.topic, ack.subscription))
        broken += [
            f"torn commit: {message!r} was acknowledged by committed transaction {transaction.txn} and is "
            f"still in {ack.subscription} of {ack.topic} (committed according to {why})"
            for message in ack.messages
            if ack.ok and left is not None and message in left.messages
        ]
    return broken


def _effects_of_aborted(facts: Facts, transaction: Transaction) -> list[str]:
    return [
        f"torn abort: {send.message!r} of aborted transaction {transaction.txn} is in {send.topic}"
        for send in transaction.sends
        if send.message in facts.places
    ]

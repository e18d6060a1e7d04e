"""The next micro-batch of a stream: how far it goes in each topic.

Rows are counted exactly, by the numbers that messages have in their topic; bytes by the average entry of each
ledger. A limit is shared out among topics by what they have waiting, and an entry is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.source.index_search import entry_of_index, open_probe
from magnetar.spark.source.range_reader import MessagesLost
from magnetar.spark.source.reading_plan import TopicLedgers, spans
from magnetar.spark.stream.offsets import UNKNOWN, LedgerRun, TopicOffset, cut_by_bytes, shares

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages of a topic between an offset and its end or a target."""

    described: TopicLedgers
    start: TopicOffset
    runs: tuple[LedgerRun, ...]

    @property
    def messages(self) -> int:
        return sum(run.messages for run in self.runs)

    @property
    def byte_length(self) -> int:
        return round(sum(run.byte_length for run in self.runs))

    @property
    def end(self) -> TopicOffset:
        """The offset after all of it."""
        if not self.runs:
            return self.start
        last = self.runs[-1]
        at = MessageAt(last.ledger_id, last.last_entry_id + 1)
        return TopicOffset(self.start.creation_id, at, last.end_index)


def begin_of(described: TopicLedgers, at: MessageAt) -> TopicOffset:
    """The offset of a place: of what comes from there on."""
    for ledger, first, _ in spans(described.ledgers, at, described.end):
        place = MessageAt(ledger.ledger_id, first)
        if place[:2] == at[:2]:
            place = at  # perhaps inside of a batch
        if not first:
            return TopicOffset(described.creation_id, place, ledger.first_index)
        with open_probe(described, ledger) as probe:
            index = probe.entry(first).first_index
        return TopicOffset(described.creation_id, place, index)
    return TopicOffset(described.creation_id, max(at, described.end), _end_index(described))


def checked_start(described: TopicLedgers, start: TopicOffset, *, fail_on_data_loss: bool) -> TopicOffset:
    """`start`, or where to go on when messages behind it are gone. Raises MessagesLost if that matters."""
    if start.creation_id != described.creation_id:
        lost = f"{described.topic} was deleted and recreated since it was read up to {start.at}"
        resumed = TopicOffset(described.creation_id, BEGINNING, UNKNOWN)
    else:
        following = next((each for each in described.ledgers if each.ledger_id >= start.at.ledger_id), None)
        if (
            following is None
            or following.ledger_id == start.at.ledger_id
            or following.first_index <= start.index
            or start.index == UNKNOWN
        ):
            return start
        gone = following.first_index - start.index
        lost = f"{gone} messages of {described.topic} from {start.at} on were trimmed before they were read"
        resumed = TopicOffset(start.creation_id, MessageAt(following.ledger_id, 0), following.first_index)
    if fail_on_data_loss:
        raise MessagesLost(
            f"{lost}; set failOnDataLoss to false to go on, and keep messages with retention or the option "
            "subscription"
        )
    log.warning("messages lost", topic=described.topic, reason=lost)
    return resumed


def waiting_behind(described: TopicLedgers, start: TopicOffset, target: TopicOffset | None) -> Waiting:
    """Return what there is to read after `start`, at most to `target`."""
    end = described.end if target is None else min(described.end, target.at)
    found = list(spans(described.ledgers, start.at, end))
    runs = []
    for number, (ledger, first, last) in enumerate(found):
        first_index = start.index if number == 0 and first else ledger.first_index
        if number + 1 < len(found):
            end_index = found[number + 1][0].first_index
        else:
            end_index = (
                target.index
                if target is not None and end == target.at
                else _index_behind(described, ledger.ledger_id, last)
            )
        entry_bytes = ledger.byte_length / max(ledger.entries, 1)
        runs.append(LedgerRun(ledger.ledger_id, first, last, first_index, end_index, entry_bytes))
    return Waiting(described, start, tuple(runs))


def admitted(waiting: Sequence[Waiting], *, rows: int | None, size: int | None) -> list[TopicOffset]:
    """Return how far to read each topic. None: no limit."""
    ends = [each.end for each in waiting]
    if rows is not None:
        for number, share in enumerate(shares([each.messages for each in waiting], rows)):
            ends[number] = _after_rows(waiting[number], share)
    if size is not None:
        for number, share in enumerate(shares([each.byte_length for each in waiting], size)):
            each = waiting[number]
            at = cut_by_bytes(each.runs, share)
            if at is not None and at < ends[number].at:
                ends[number] = begin_of(each.described, at)
    return ends


def _after_rows(waiting: Waiting, rows: int) -> TopicOffset:
    """Return the offset after `rows` more messages: no entry is cut, and at least one is taken."""
    if rows >= waiting.messages or not waiting.runs:
        return waiting.end if rows else waiting.start
    creation_id = waiting.start.creation_id
    left = rows
    for run in waiting.runs:
        if left >= run.messages:
            left -= run.messages
            continue
        return _inside(waiting, run, left, alone=run is waiting.runs[0], creation_id=creation_id)
    return waiting.end


def _inside(waiting: Waiting, run: LedgerRun, rows: int, *, alone: bool, creation_id: int) -> TopicOffset:
    described = waiting.described
    ledger = next(each for each in described.ledgers if each.ledger_id == run.ledger_id)
    first, end = (run.first_entry_id, run.first_index), (run.last_entry_id + 1, run.end_index)
    with open_probe(described, ledger) as probe:
        entry_id, index = entry_of_index(probe, first, end, run.first_index + rows)
        if entry_id == run.first_entry_id and alone:
            entry_id += 1
            index = run.end_index if entry_id > run.last_entry_id else probe.entry(entry_id).first_index
    return TopicOffset(creation_id, MessageAt(run.ledger_id, entry_id), index)


def _end_index(described: TopicLedgers) -> int:
    if not described.ledgers:
        return UNKNOWN
    last = described.ledgers[-1]
    return _index_behind(described, last.ledger_id, last.last_entry_id)


def _index_behind(described: TopicLedgers, ledger_id: int, entry_id: int) -> int:
    """The number behind an entry's last message."""
    for number, ledger in enumerate(described.ledgers):
        if ledger.ledger_id != ledger_id:
            continue
        if entry_id == ledger.last_entry_id and number + 1 < len(described.ledgers):
            return described.ledgers[number + 1].first_index
        try:
            with open_probe(described, ledger) as probe:
                found = probe.entry(entry_id)
        except MagnetarError as error:
            if error.retriable:
                raise
            # An unreadable entry has a number all the same, and a later batch tells what is lost.
            log.warning("entry cannot be read", topic=described.topic, ledger=ledger_id, entry=entry_id)
            return ledger.first_index + entry_id + 1
        return found.first_index + found.messages
    return 0

"""Shapes of a broker's answers: which fields are present and of what kind, as rows of a table.

Client libraries read optional fields without asking whether they are there (Java's accessors throw on an
absent one), so presence is part of the protocol. A row is (exchange, answer, field, kind):

- exchange: the name of a function in exchanges.py;
- answer: the command's field name in BaseCommand, with `#2` for the second that differs in the same exchange,
  or `closed` for a connection that the broker ends;
- field: the path of a present field, `-` for a command without any;
- kind: the value where it is part of the protocol (enums, booleans, small numbers, -1), else what kind of
  value it is (`id`, `number`, `text`, `empty`, `3 bytes`).
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.integration.raw.transcript import Frame

_HEADER: Final = "exchange\tanswer\tfield\tkind"
_NUMBERS_SHOWN_MAX: Final = 1_000
_MINUS_ONE: Final = {(1 << 64) - 1, (1 << 32) - 1, -1}
_IDENTITIES: Final = {"request_id", "producer_id", "consumer_id", "watcher_id", "ledgerId", "entryId"}
_VARYING: Final = {"msgRateOut", "msgThroughputOut", "msgRateRedeliver", "msgRateExpired", "messageAckRate"}
CLOSED: Final = "closed"


class Row(NamedTuple):
    """One present field of one answer."""

    exchange: str
    answer: str
    field: str
    kind: str


def rows(exchange: str, frames: list[Frame | None]) -> list[Row]:
    """The rows of one exchange; None stands for the end of the connection.

    Answers of different kinds may overtake each other, so rows are sorted by the kind of answer; what is
    answered several times alike counts once.
    """
    shapes: defaultdict[str, list[list[tuple[str, str]]]] = defaultdict(list)
    for frame in frames:
        fields = [] if frame is None else [*_present(frame.command)]
        of_its_kind = shapes[CLOSED if frame is None else frame.name]
        if (shape := fields or [("-", "-")]) not in of_its_kind:
            of_its_kind.append(shape)
    return sorted(
        Row(exchange, f"{name}#{number}" if number > 1 else name, path, kind)
        for name, of_its_kind in shapes.items()
        for number, shape in enumerate(of_its_kind, 1)
        for path, kind in shape
    )


def _present(message: Message, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.is_repeated:
            yield path, "repeated"
        elif field.message_type is not None:
            nested = [*_present(value, f"{path}.")]
            yield from nested or [(path, "empty")]
        else:
            yield path, _kind(field, value)


def _kind(field: FieldDescriptor, value: object) -> str:
    if field.enum_type is not None:
        assert isinstance(value, int)
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if value else "empty"
    if isinstance(value, str):
        return "text" if value else "empty"
    if field.name in _VARYING:
        return "number"
    if value in _MINUS_ONE:
        return "-1"
    if field.name in _IDENTITIES:
        return "id"
    assert isinstance(value, int | float)
    return f"{value:g}" if value < _NUMBERS_SHOWN_MAX else "number"


class Difference(NamedTuple):
    """Rows that Magnetar answers otherwise than Apache Pulsar, and why; names may hold `*`."""

    exchange: str
    answer: str
    field: str
    apache: str
    magnetar: str
    reason: str

    def covers(self, row: Row, *, of_apache: bool) -> bool:
        """Whether `row`, which only one of both brokers has, is this difference."""
        kind = self.apache if of_apache else self.magnetar
        names = zip(row, (self.exchange, self.answer, self.field, kind), strict=True)
        return all(fnmatch.fnmatchcase(name, pattern) for name, pattern in names)


def read_differences(path: Path) -> list[Difference]:
    """The differences that are argued for; `-` as a kind stands for a field that is not there."""
    header, *lines = path.read_text().splitlines()
    assert header == "\t".join(Difference._fields), f"{path} begins with {header!r}"
    return [Difference(*line.split("\t")) for line in lines]


def read_table(path: Path) -> list[Row]:
    """The rows of a recorded table."""
    header, *lines = path.read_text().splitlines()
    assert header == _HEADER, f"{path} begins with {header!r}"
    return [Row(*line.split("\t")) for line in lines]


def write_table(path: Path, table: list[Row]) -> None:
    """Keep a table that was recorded."""
    path.write_text("\n".join([_HEADER, *("\t".join(row) for row in table)]) + "\n")

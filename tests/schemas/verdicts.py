"""Verdicts on schemas by Apache Pulsar's own classes, and Magnetar's where they differ: verdicts.tsv."""

from __future__ import annotations

import base64
import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.rules import Strategy

_FILE: Final = Path(__file__).with_name("verdicts.tsv")

STRATEGIES: Final = (
    Strategy.ALWAYS_INCOMPATIBLE,
    Strategy.ALWAYS_COMPATIBLE,
    Strategy.BACKWARD,
    Strategy.FORWARD,
    Strategy.FULL,
    Strategy.BACKWARD_TRANSITIVE,
    Strategy.FORWARD_TRANSITIVE,
    Strategy.FULL_TRANSITIVE,
)
"""The strategies of the letters of a verdict, in order."""


@dataclass(frozen=True)
class VerdictCase:
    """A line of the table: what Magnetar has to answer."""

    name: str
    history: list[tuple[int, SchemaDefinition]]
    """Versions, numbered from 0; type NONE is a deletion."""
    new: SchemaDefinition
    put: str
    """One letter for each of STRATEGIES, as the table explains them; so for `subscribe`."""
    subscribe: str
    find: int | None


def verdict_cases() -> list[VerdictCase]:
    """Returns all lines."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return [_case(row) for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]


def _case(row: dict[str, str]) -> VerdictCase:
    find = int(row["ours_find"] or row["find"])
    return VerdictCase(
        row["id"],
        [(number, _definition(each)) for number, each in enumerate(json.loads(row["old"]))],
        _definition(json.loads(row["new"])),
        row["ours_put"] or row["put"],
        row["ours_subscribe"] or row["subscribe"],
        None if find < 0 else find,
    )


def _definition(given: dict[str, Any]) -> SchemaDefinition:
    if given.get("deleted"):
        return SchemaDefinition(SchemaType.NONE, b"")
    data = base64.b64decode(given["base64"]) if "base64" in given else given["data"].encode()
    return SchemaDefinition(SchemaType[given["type"]], data, given.get("properties", {}))

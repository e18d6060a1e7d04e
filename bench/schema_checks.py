"""Schema checks a second on records of 200 fields: `python -m bench.schema_checks`.

A producer with a new schema waits for one such check. The goal is below 2 ms for two definitions of 200
fields that were parsed before, and this says what the first check of a definition costs, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.rules import Strategy, check_put, find

FIELDS: Final = 200
VERSIONS: Final = 100
ROUNDS: Final = 5
SECONDS: Final = 0.3
"""Time of a round."""


def main() -> None:
    """Print the best of a few rounds for each kind of check."""
    old, new = _definition(), _definition({"name": "added", "type": "int", "default": 0})
    history = [(0, old)]
    versions = [(number, _numbered(number)) for number in range(VERSIONS)]
    numbers = count(VERSIONS)
    cases: dict[str, Callable[[], object]] = {
        "known schema found": lambda: find(old, history),
        "FULL, two versions": lambda: check_put(new, history, Strategy.FULL),
        "FULL, the new one never parsed before": lambda: check_put(
            _numbered(next(numbers)), history, Strategy.FULL
        ),
        f"FULL_TRANSITIVE, {VERSIONS} versions": lambda: check_put(new, versions, Strategy.FULL_TRANSITIVE),
    }
    print(f"records of {FIELDS} fields, {len(old.data):,} bytes")
    for name, check in cases.items():
        check()
        milliseconds = min(_milliseconds(check) for _ in range(ROUNDS))
        print(f"{name:<40} {milliseconds:>9.3f} ms")


def _definition(*more: Any, **properties: Any) -> SchemaDefinition:
    kinds = ("int", "string", ["null", "string"], {"type": "array", "items": "long"}, "double")
    fields = [{"name": f"field_{i}", "type": kinds[i % len(kinds)]} for i in range(FIELDS)]
    record = {"type": "record", "name": "Wide", "fields": [*fields, *more], **properties}
    return SchemaDefinition(SchemaType.AVRO, json.dumps(record).encode())


def _numbered(number: int) -> SchemaDefinition:
    return _definition(number=number)


def _milliseconds(check: Callable[[], object]) -> float:
    """Returns the processor time of one check."""
    checks, began = 0, time.process_time()
    while time.process_time() - began < SECONDS:
        check()
        checks += 1
    return (time.process_time() - began) / checks * 1e3


if __name__ == "__main__":
    main()

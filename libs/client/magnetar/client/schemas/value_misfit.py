"""The error inside conversions of values, which collects the path of the field on its way out."""

from __future__ import annotations

from magnetar.common.schemas.definition import shown


class ValueMisfit(Exception):
    """A value does not fit its part of a definition. Schemas turn it into a SchemaError."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self._why = why
        self._path: list[str] = []

    def within(self, part: str) -> ValueMisfit:
        """Adds the enclosing part to the path: `.name` of a field, `[3]` of an array, `{'key'}` of a map."""
        self._path.append(part)
        return self

    def __str__(self) -> str:
        path = "".join(reversed(self._path)).removeprefix(".")
        return f"{path}: {self._why}" if path else self._why


def not_a(expected: str, value: object) -> ValueMisfit:
    """Returns the error for a value of a wrong type; `expected` with its article."""
    kind = "null" if value is None else f"{shown(value)} of type {type(value).__name__}"
    return ValueMisfit(f"{kind} is not {expected}")

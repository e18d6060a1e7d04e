"""Values of options: sizes and times with units (10M, 3h), lists, pairs."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_FORM: Final = re.compile(r"(-?[0-9]+)([a-zA-Z]?)")


class Amount(click.ParamType[int]):
    """An integer with a unit suffix; -1 has no unit."""

    def __init__(self, name: str, units: dict[str, int], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _FORM.fullmatch(str(value).strip())
        if found is None or found[2].lower() not in self._units:
            self.fail(f"invalid {self.name} {value!r}; write it as {self._example}", param, ctx)
        number = int(found[1])
        return number if number < 0 else number * self._units[found[2].lower()]


SIZE: Final = Amount("size", _SIZES, "4096, 10M or 3G")
"""In bytes."""

SECONDS: Final = Amount("time", _SECONDS, "90s, 10m, 3h or 2d")
"""In seconds."""


class TopicText(click.ParamType[str]):
    """A topic's name without control characters: brokers accept them, but a terminal does not show them."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if bad := next((each for each in text if not each.isprintable() and not _is_undecoded(each)), ""):
            self.fail(f"{text!r} contains the control character {bad!r}; remove it", param, ctx)
        return text


def _is_undecoded(character: str) -> bool:
    """Return whether a character stands for a byte that is not UTF-8, which has an error of its own."""
    return "\udc80" <= character <= "\udcff"


TOPIC: Final = TopicText()


def comma_list(text: str) -> list[str]:
    """Split a comma-separated list."""
    return [each.strip() for each in text.split(",") if each.strip()]


def pairs(given: tuple[str, ...], what: str) -> dict[str, str]:
    """Parse options of the form key=value. Raises UsageError."""
    found = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{what} {each!r} must have the form key=value")
        found[key] = value
    return found


def key_files(given: tuple[str, ...], what: str) -> dict[str, bytes]:
    """Read the files of options of the form NAME=FILE. Raises UsageError."""
    found = {}
    for name, path in pairs(given, what).items():
        try:
            with open(path, "rb") as file:
                found[name] = file.read()
        except OSError as error:
            raise click.UsageError(f"{what} {name}={path}: {error.strerror}") from error
    return found

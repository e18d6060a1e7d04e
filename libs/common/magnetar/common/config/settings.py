"""Typed settings: declares the key, unit and documentation of each field of a configuration dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class SettingInfo:
    """The properties of one setting, for the loader and the generated reference."""

    key: str
    doc: str
    minimum: float | None = None
    choices: tuple[str, ...] | None = None
    maximum: float | None = None
    secret: bool = False
    """Whether values must not be shown unless they are paths of files."""


def setting(
    default: Any,
    doc: str,
    *,
    key: str,
    minimum: float | None = None,
    choices: Sequence[str] | None = None,
    maximum: float | None = None,
    secret: bool = False,
) -> Any:
    """Declares a dataclass field read from configuration key `key` (Pulsar's name, or `magnetar...`).

    `doc` is the sentence that docs/configuration.md shows; units are part of it. Services nest one frozen
    dataclass per concept; the loader flattens them, so keys are unique over all of them. Values of a `secret`
    one are hidden wherever settings are shown, unless they are paths of files.
    """
    info = SettingInfo(key, doc, minimum, None if choices is None else tuple(choices), maximum, secret)
    return dataclasses.field(default=default, metadata={"setting": info})

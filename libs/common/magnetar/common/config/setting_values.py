"""Single settings: enumeration of a class's settings, and conversion of their values from and to text."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from magnetar.common.config.settings import SettingInfo

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)

TYPE_NAMES: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    tuple: "a comma-separated list",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of a settings class. `kind` is bool, int, float, str or tuple; `optional` allows None."""

    info: SettingInfo
    kind: type
    optional: bool
    default: Any
    section: type


def settings_of(cls: type) -> dict[str, Setting]:
    """Returns the settings of a class and of its nested classes, by key, in declaration order.

    Defaults are those of `cls()`, so an outer class can override the defaults of a nested one.
    """
    found: dict[str, Setting] = {}
    _collect(cls(), found)
    return found


def _collect(instance: Any, found: dict[str, Setting]) -> None:
    cls = type(instance)
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(value):
            _collect(value, found)
            continue
        info = field.metadata.get("setting")
        assert isinstance(info, SettingInfo), f"{cls.__name__}.{field.name} is neither nested nor a setting()"
        assert info.key not in found, f"configuration key {info.key} is declared twice"
        found[info.key] = Setting(info, *_base_type(hints[field.name]), value, cls)


def build(cls: type, values: Mapping[str, Any]) -> Any:
    """Creates an instance of the class from the values of all its settings, by key."""
    hints = get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            arguments[field.name] = build(hint, values)
        else:
            arguments[field.name] = values[field.metadata["setting"].key]
    return cls(**arguments)


def read_value(setting: Setting, text: str) -> Any:
    """Parses a non-blank text; raises ValueError with the expected form."""
    text = text.strip()
    value: Any
    if setting.kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"is not {TYPE_NAMES[bool]}")
        return text.lower() == "true"
    if setting.kind is int:
        if _INTEGER.fullmatch(text) is None:
            raise ValueError(f"is not {TYPE_NAMES[int]}")
        value = int(text)
    elif setting.kind is float:
        value = _read_float(text)
    elif setting.kind is tuple:
        value = tuple(part.strip() for part in text.split(",") if part.strip())
    else:
        value = text
    _check_range(setting, value)
    return value


def show_value(value: Any) -> str:
    """Returns the text that `read_value` parses to the same value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


HIDDEN: Final = "(hidden)"
"""Shown in place of a secret value."""


def show_setting(info: SettingInfo, value: Any) -> str:
    """The text of a setting's value for readers; of a secret one only where it lies."""
    text = show_value(value)
    return hidden(text) if info.secret else text


def hidden(text: str) -> str:
    """The text of a secret setting for readers: an empty one and the path of a file as they are."""
    is_path = text.startswith("file:") or (text.startswith(("/", "./", "../")) and os.path.exists(text))
    return text if not text or is_path else HIDDEN


def _read_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"is not {TYPE_NAMES[float]}")
    return value


def _check_range(setting: Setting, value: Any) -> None:
    info = setting.info
    if info.minimum is not None and value < info.minimum:
        raise ValueError(f"is below the minimum of {info.minimum:g}")
    if info.maximum is not None and value > info.maximum:
        raise ValueError(f"is above the maximum of {info.maximum:g}")
    if info.choices is not None:
        for part in value if isinstance(value, tuple) else (value,):
            if part not in info.choices:
                raise ValueError(f"is not one of {', '.join(info.choices)}")


def _base_type(hint: Any) -> tuple[type, bool]:
    optional = False
    if get_origin(hint) in (UnionType, Union):
        members = [member for member in get_args(hint) if member is not type(None)]
        assert len(members) == 1, f"{hint} is not a type of settings"
        hint, optional = members[0], True
    base = get_origin(hint) or hint
    assert base in TYPE_NAMES, f"{hint} is not a type of settings"
    return base, optional

"""Markdown reference of a settings class, for docs/configuration.md."""

from __future__ import annotations

import inspect
from typing import Final

from magnetar.common.config.setting_values import Setting, settings_of, show_value

_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "text", tuple: "list"}
"""Names of setting types in the reference."""


def reference(settings_class: type, *bases: type) -> str:
    """Returns a table for each nested dataclass, under the first sentence of its docstring.

    Settings that one of `bases` has with the same text and default are left out.
    """
    same = {_row(setting) for base in bases for setting in settings_of(base).values()}
    sections: dict[type, list[Setting]] = {}
    for setting in settings_of(settings_class).values():
        if _row(setting) not in same:
            sections.setdefault(setting.section, []).append(setting)
    return "\n".join(_table(section, settings) for section, settings in sections.items())


def _table(section: type, settings: list[Setting]) -> str:
    title = (inspect.getdoc(section) or section.__name__).split("\n")[0].rstrip(".")
    lines = [f"### {title}", "", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines.extend(map(_row, settings))
    return "\n".join(lines) + "\n"


def _row(setting: Setting) -> str:
    return f"| `{setting.info.key}` | {_type(setting)} | {_default(setting)} | {_doc(setting)} |"


def _type(setting: Setting) -> str:
    info = setting.info
    text = _TYPES[setting.kind]
    if info.choices is not None:
        text = ("list of " if setting.kind is tuple else "one of ") + ", ".join(info.choices)
    if info.minimum is not None and info.maximum is not None:
        text += f" {info.minimum:.15g} to {info.maximum:.15g}"
    elif info.minimum is not None:
        text += f" ≥ {info.minimum:.15g}"
    elif info.maximum is not None:
        text += f" ≤ {info.maximum:.15g}"
    return f"{text} or empty" if setting.optional else text


def _default(setting: Setting) -> str:
    shown = show_value(setting.default)
    return f"`{shown}`" if shown else "empty"


def _doc(setting: Setting) -> str:
    return " ".join(setting.info.doc.split()).replace("|", "\\|")

"""Removes secrets from texts and JSON values, by the names of settings and by the forms of tokens and keys.

Brokers hide secret settings already; this is the second line, and the only one for logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

HIDDEN: Final = "(hidden)"

_NAME: Final = re.compile(
    r"(?i)(secret|passw|passphrase|credential|authparam|authenticationparameters|privatekey|private_key|token"
    r"|api_?key|access_?key|authorization|cookie)"
)
_HARMLESS: Final = re.compile(
    r"(?i)(path|file|enabled|claim|audience|interval|seconds|minutes|algorithm|size|count|max)$"
)
"""Endings of names that contain a word of `_NAME` and say nothing secret; paths of files are not secret."""

_PATH: Final = re.compile(r"(file:)?/[^\s:]*")

_FORMS: Final = (
    (re.compile(r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), HIDDEN),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        HIDDEN,
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"data:[\w/.+-]*;base64,[\w+/=-]+"), HIDDEN),
    (re.compile(r"(\w[\w+.-]*://)[^\s/@:]*:[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\btoken:[^\s\"',]+"), f"token:{HIDDEN}"),
)
_ASSIGNED: Final = re.compile(r"([\w.-]+)([\"']?\s*[=:]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;\"'}\]]+)")


def is_secret_name(name: str) -> bool:
    """Returns whether a setting of this name may hold a secret."""
    return _NAME.search(name) is not None and _HARMLESS.search(name) is None


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """Returns a text without secrets. `known` are secrets that this command has itself."""
    for secret in known:
        if len(secret) >= 4:
            text = text.replace(secret, HIDDEN)
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return _ASSIGNED.sub(_hide_assigned, text)


def _hide_assigned(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    bare = value.strip("\"'")
    if not is_secret_name(name) or not bare or bare == HIDDEN or _PATH.fullmatch(bare):
        return found[0]
    if bare.lower() in ("true", "false", "null", "none") or bare.isdecimal():
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{HIDDEN}{quote}"


def redact_value(value: Any, known: Iterable[str] = (), name: str = "") -> Any:
    """Returns a JSON value without secrets; `name` is its key."""
    known = tuple(known)
    if isinstance(value, dict):
        return {key: redact_value(each, known, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [redact_value(each, known, name) for each in value]
    if not isinstance(value, str) or not value:
        return value
    if is_secret_name(name) and not _PATH.fullmatch(value) and value.lower() not in ("true", "false"):
        return value if value.isdecimal() else HIDDEN
    return redact_text(value, known)

"""Templates: escaped by default, rendered in slices of a millisecond.

In a standalone pages share the event loop with messages, and messages come first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from magnetar.console import figures

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"

TURN_S: Final = 0.001
"""Seconds of rendering after which the event loop gets a turn."""


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "age": figures.age_text,
        "bytes": figures.byte_text,
        "count": figures.count_text,
        "latency": figures.latency_text,
        "rate": figures.rate_text,
        "time": figures.time_text,
        "pretty": pretty,
        "query": query,
    }
    return made


async def render(name: str, values: dict[str, Any]) -> str:
    """Return the text of a template."""
    now = asyncio.get_running_loop().time
    parts, due = [], now() + TURN_S
    for part in environment().get_template(name).generate(values):
        parts.append(part)
        if now() >= due:
            await asyncio.sleep(0)
            due = now() + TURN_S
    return "".join(parts)


def pretty(value: Any) -> str:
    """Return a JSON value as indented text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def query(values: dict[str, Any]) -> str:
    """Return the query of a link; values that are None are left out."""
    return urlencode({name: value for name, value in values.items() if value is not None})


@cache
def static_version() -> str:
    """Return a digest of all static files, which is part of their links: browsers may keep them for ever."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]

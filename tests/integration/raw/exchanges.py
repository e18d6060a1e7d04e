"""Exchanges of raw commands, one function each, that make a broker give every answer it has.

They are sent to Apache Pulsar once, when the golden table is recorded (`python -m bench.answers`), and to
Magnetar by test_answers.py. Each has topics of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final

from tests.integration.raw import (
    exchanges_of_consumers,
    exchanges_of_producers,
    exchanges_of_subscriptions,
    exchanges_of_topics,
)
from tests.integration.raw.exchange import Exchange

_MODULES: Final = (
    exchanges_of_topics,
    exchanges_of_producers,
    exchanges_of_subscriptions,
    exchanges_of_consumers,
)

EXCHANGES: Final[dict[str, Callable[[Exchange], None]]] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
}
"""All of them, by name."""

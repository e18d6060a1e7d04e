"""Rules for the schemas of one topic: the policies in effect, resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.schemas.rules import Strategy


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """Required compatibility of a new schema, and the clients that may add one."""

    strategy: Strategy = Strategy.FULL
    may_update: bool = True
    """Whether producers, and the first consumer of an unused topic, may add a schema."""
    enforced: bool = False
    """Whether producers without a schema are refused on a topic that has one."""


DEFAULT_RULES: Final = SchemaRules()

"""Rules for the schemas of one topic: the policies in effect, resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.schemas.rules import Strategy


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """What a new schema must be compatible with, and where schemas may come from."""

    strategy: Strategy = Strategy.FULL
    may_update: bool = True
    """Whether producers, and the first consumer of an unused topic, may add a schema."""
    enforced: bool = False
    """Whether producers without a schema are refused on a topic that has one."""


DEFAULT_RULES: Final = SchemaRules()

"""Ids of transactions, and how transactions end."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TxnId(NamedTuple):
    """(most, least): the coordinator's id and a number that this coordinator gives once. (0, 0) is valid."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


class Action(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"

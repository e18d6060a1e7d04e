"""Positions of messages in a topic: pure values, ordered as the topic's messages are."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_MESSAGE_ID: Final = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})(?::(-?[0-9]{1,10}))?(?::(-?[0-9]{1,10}))?")


class MessageAt(NamedTuple):
    """An ordered message position. As a bound: the position before that message.

    `batch_index` -1: a message that is no batch's; as a bound, the place before the entry.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return text if self.batch_index < 0 else f"{text}:-1:{self.batch_index}"


BEGINNING: Final = MessageAt(0, 0)
"""Before every message."""

END: Final = MessageAt(2**63 - 1, 0)
"""The position after every message."""


def parse_message_id(text: str) -> MessageAt:
    """`ledger:entry[:partition[:batch]]`, as Pulsar's tools print them.

    Raises ValueError, saying what it is not.
    """
    found = _MESSAGE_ID.fullmatch(text.strip())
    if found is None:
        raise ValueError("not a message id such as 12:34 or 12:34:-1:5 (ledger:entry:partition:batch)")
    ledger_id, entry_id = int(found[1]), int(found[2])
    batch_index = int(found[4]) if found[4] else -1
    if ledger_id < 0 or entry_id < 0:
        return BEGINNING
    return MessageAt(ledger_id, entry_id, max(batch_index, -1))

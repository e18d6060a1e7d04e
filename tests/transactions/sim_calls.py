"""Calls to simulated brokers: JSON over the simulated network, and errors that say what became of a call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    TooManyTransactions,
    TransactionConflict,
    TransactionNotAllowed,
    TransactionNotFound,
)
from magnetar.sim.network import NetworkDown, SimNetwork
from magnetar.sim.process import SimProcess

TIMEOUT_S: Final = 0.4
"""Seconds that a client waits for an answer."""

CERTAIN: Final = frozenset(
    error.__name__
    for error in (
        InvalidTxnStatus,
        TransactionNotFound,
        TransactionConflict,
        TransactionNotAllowed,
        TooManyTransactions,
    )
)
"""Errors of calls that certainly had no effect."""

NOT_STORED: Final = "NotStored"
"""Answer to a publish that was given up before it was stored."""


class CallFailed(Exception):
    """A call without success; `name` is that of the error at the broker, empty when no answer came."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name

    @property
    def certain(self) -> bool:
        """Whether the call had no effect."""
        return self.name in CERTAIN or self.name == NOT_STORED


@dataclass(frozen=True, slots=True)
class Address:
    """One life of a broker's process, as a connection names it."""

    name: str
    life: int


@dataclass(slots=True)
class Caller:
    """A process that calls brokers."""

    network: SimNetwork
    process: SimProcess
    name: str
    """Unique among the callers of a process."""
    _calls: int = 0

    async def call(self, to: Address, method: str, timeout_s: float = TIMEOUT_S, **fields: Any) -> Any:
        """Raises CallFailed."""
        self._calls += 1
        request = {**fields, "life": to.life, "id": f"{self.process.name}/{self.name}/{self._calls}"}
        data = json.dumps(request).encode()
        try:
            (answer,) = await self.network.call(self.process, to.name, method, data, timeout_s)
        except NetworkDown as error:
            raise CallFailed("", str(error)) from None
        found = json.loads(answer)
        if "error" in found:
            raise CallFailed(found["error"], found["text"])
        return found["value"]


def answer(value: Any) -> bytes:
    return json.dumps({"value": value}).encode()


def failure(error: MagnetarError) -> bytes:
    return json.dumps({"error": type(error).__name__, "text": str(error)}).encode()

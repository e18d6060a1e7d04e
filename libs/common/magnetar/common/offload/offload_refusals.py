"""Refusals of offload steps: the ledger's state in metadata does not allow the step.

The errors travel by name, so a job catches the error class that the broker raised. An unchanged retry fails
again; the message says what must be done first.
"""

from __future__ import annotations

from magnetar.common.errors import NotAllowed


class OffloadRefused(NotAllowed):
    """The ledger is not in the state that this step requires."""


class NoLedgerToOffload(OffloadRefused):
    """The topic has no such closed ledger: it was trimmed or is still open, or the topic was deleted."""


class NotWanted(OffloadRefused):
    """No offload of the ledger was requested; request it first."""


class OffloadRunning(OffloadRefused):
    """Another attempt is offloading the ledger and sent a recent heartbeat."""


class OffloadedAlready(OffloadRefused):
    """Another attempt's objects are complete; nothing is left to do."""


class AttemptOver(OffloadRefused):
    """This attempt was given up or replaced by another one; its objects will be swept."""


class CountsDiffer(OffloadRefused):
    """The objects read back differ from the ledger, so they are not complete."""


class OnlyCopy(OffloadRefused):
    """The entries exist only in objects: they cannot be written again or read from bookies."""


class HeldByTransaction(OffloadRefused):
    """An open transaction has entries before the ledger's end: wait until it ends."""


class BadLocation(OffloadRefused):
    """The location of objects is not a valid URI, or none is configured."""

"""Why a step of a ledger on its way to objects is refused: what stands in metadata does not allow it.

They travel by name, so a job catches the same error that the broker raised. To ask again unchanged is no use:
what has to be done first, the message says.
"""

from __future__ import annotations

from magnetar.common.errors import NotAllowed


class OffloadRefused(NotAllowed):
    """The ledger is not in the state that this step begins in."""


class NoLedgerToOffload(OffloadRefused):
    """The topic has no such closed ledger: it was trimmed, or the topic deleted, or the ledger is open."""


class NotWanted(OffloadRefused):
    """The ledger is not wanted offloaded; request that first."""


class OffloadRunning(OffloadRefused):
    """Another attempt is at work at the ledger, and was heard of not long ago."""


class OffloadedAlready(OffloadRefused):
    """Another attempt's objects are whole: there is nothing left to do."""


class AttemptOver(OffloadRefused):
    """This attempt was given up, or another one took the ledger over: its objects are swept."""


class CountsDiffer(OffloadRefused):
    """The objects read back differ from the ledger, so they are not complete."""


class OnlyCopy(OffloadRefused):
    """Only the objects have the entries: they cannot be written again, nor read from bookies."""


class BadLocation(OffloadRefused):
    """The location of objects is not a valid URI, or none is configured."""

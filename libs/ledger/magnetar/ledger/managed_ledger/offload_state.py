"""A closed ledger on its way to objects: who may take which step, as pure functions of its own key's value.

    (none) --want--> WANTED --begin--> RUNNING --complete--> COMPLETE --leave--> COMPLETE, left bookies
                       ^ <----fail------- |                     |
                       | <-begin of another attempt, when stale |
                       | <------------------again---------------|

Each takes a TopicLedger as it stands and returns what it becomes, in a value of its own; the given one stays
as it is. Taking a step that was taken already, by the same attempt, changes nothing and is no error: an
answer that was not heard can be asked for again. A step that is not allowed raises an OffloadRefused that
says why.
`OffloadLedgers` (offload_ledgers) commits them by the version of the ledger's key.

Times are ms since 1970 UTC.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import LEFT_BOOKIES, TopicLedger
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    CountsDiffer,
    NoLedgerToOffload,
    NotWanted,
    OffloadedAlready,
    OffloadRefused,
    OffloadRunning,
    OnlyCopy,
)

__all__ = [
    "ATTEMPT_BYTES",
    "STALE_AFTER_MS",
    "OffloadRefused",
    "again",
    "begin",
    "check_location",
    "complete",
    "fail",
    "has_left_bookies",
    "is_complete",
    "is_stale",
    "leave",
    "names_objects",
    "want",
]

ATTEMPT_BYTES: Final = 16
"""Length of an attempt's random name in bytes."""

SHA256_BYTES: Final = 32

ERROR_CHARS_MAX: Final = 1_000
"""Maximum length of a stored error text in characters."""

LOCATION_CHARS_MAX: Final = 2_048

STALE_AFTER_MS: Final = 60 * 60 * 1000
"""Default time in ms without a heartbeat after which a running attempt may be taken over."""

CLOCK_AHEAD_MS: Final = 24 * 60 * 60 * 1000
"""Clock skew in ms: a heartbeat this far in the future came from a wrong clock and does not block a takeover.
"""

_S3: Final = ("s3", "s3a", "s3n")


def is_complete(ledger: TopicLedger) -> bool:
    """Returns whether verified objects hold all its entries."""
    return ledger.offload.state == Offload.COMPLETE


def has_left_bookies(ledger: TopicLedger) -> bool:
    """Returns whether only objects have its entries."""
    return bool(ledger.format.incompatible_features & LEFT_BOOKIES)


def names_objects(ledger: TopicLedger) -> bool:
    """Returns whether its attempt's objects must stay; true for states unknown to this release."""
    return ledger.offload.state not in (Offload.STATE_UNSPECIFIED, Offload.WANTED)


def is_stale(ledger: TopicLedger, now_ms: int, stale_after_ms: int = STALE_AFTER_MS) -> bool:
    """Returns whether a running attempt has sent no heartbeat for so long that another may take over.

    Brokers' clocks differ: a broker with a slow clock allows no takeover, unless the last heartbeat is a day
    ahead of it.
    """
    offload = ledger.offload
    if offload.state != Offload.RUNNING:
        return False
    silent_ms = now_ms - _heard_ms(offload)
    return silent_ms >= stale_after_ms or silent_ms <= -CLOCK_AHEAD_MS


def waits(ledger: TopicLedger, now_ms: int, stale_after_ms: int = STALE_AFTER_MS) -> bool:
    """Returns whether the next job may take it."""
    return ledger.offload.state == Offload.WANTED or is_stale(ledger, now_ms, stale_after_ms)


def check_location(location: str) -> str:
    """Returns a location in stored form, without a trailing slash. Raises BadLocation, with the expected
    form.

    The job finds out whether the location exists and a package can reach it.
    """
    text = location.rstrip("/")
    said = f"{location[:200]!r} is no place for objects"
    form = "write file:///directory, s3://bucket/prefix or another URI that fsspec knows"
    if not location:
        raise BadLocation(
            "no location is configured for offloaded ledgers: set the offload policies of the namespace or "
            f"the topic, or magnetarOffloadLocation of the brokers; {form}"
        )
    if len(location) > LOCATION_CHARS_MAX or any(
        each.isspace() or not each.isprintable() for each in location
    ):
        raise BadLocation(f"{said}: too long, or with characters that no URI has; {form}")
    try:
        parts = urlsplit(text)
        has_credentials = parts.password is not None or (parts.scheme in _S3 and "@" in parts.netloc)
    except ValueError:
        raise BadLocation(f"{said}; {form}") from None
    if has_credentials or parts.query or parts.fragment:
        # Not quoted: its value may be secret and is kept out of logs and metadata.
        raise BadLocation(
            f"a location names no credentials and no parameters: those come from the environment; {form}"
        )
    if "://" not in text or not (parts.netloc or parts.path.strip("/")):
        raise BadLocation(f"{said}; {form}")
    if ".." in parts.path.split("/"):
        raise BadLocation(f"{said}: it has '..' in it; {form}")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise BadLocation(f"{said}: file:// takes an absolute path; {form}")
    return text


def want(ledger: TopicLedger, *, location: str, exact: bool = False, now_ms: int) -> TopicLedger:
    """Requests offload to that location by the next job.

    A waiting ledger takes over the location; a running or complete one stays unchanged. Raises
    NoLedgerToOffload if it is empty, BadLocation.
    """
    location = check_location(location)
    if ledger.last_entry_id < ledger.first_entry_id or ledger.last_entry_id < 0:
        raise NoLedgerToOffload(f"ledger {ledger.ref.id} is empty: there is nothing to offload")
    after = _copy(ledger)
    offload = after.offload
    if offload.state in (Offload.RUNNING, Offload.COMPLETE):
        return after
    if offload.state != Offload.WANTED:
        offload.Clear()
        offload.state = Offload.WANTED
        offload.wanted_ms = now_ms
    offload.location = location
    offload.exact = exact
    return after


def begin(
    ledger: TopicLedger,
    *,
    attempt: bytes,
    path: str,
    now_ms: int,
    stale_after_ms: int = STALE_AFTER_MS,
) -> TopicLedger:
    """Claims the ledger for an attempt that writes objects below `path`; a repeated call is a heartbeat.

    An attempt without a heartbeat for `stale_after_ms` ends here and counts as failed. Raises NotWanted,
    OffloadRunning, OffloadedAlready, AttemptOver if this attempt had ended.
    """
    _check_attempt(attempt)
    after = _copy(ledger)
    offload = after.offload
    who = _named(ledger)
    if offload.state == Offload.RUNNING:
        if offload.attempt == attempt:
            if not is_stale(ledger, now_ms, stale_after_ms):
                now_ms = max(now_ms, offload.heard_ms)  # by another broker's clock
            offload.heard_ms = now_ms
            return after
        if not is_stale(ledger, now_ms, stale_after_ms):
            heard_s = max(0, now_ms - _heard_ms(offload)) // 1000
            raise OffloadRunning(
                f"{who} is being offloaded by attempt {offload.attempt.hex()}, heard of {heard_s} s ago: it "
                f"may be taken over when nothing was heard for {stale_after_ms // 1000} s"
            )
        offload.failures += 1
        offload.error = f"attempt {offload.attempt.hex()} was not heard of for {stale_after_ms // 1000} s"
    elif offload.state == Offload.COMPLETE:
        raise OffloadedAlready(f"{who} was offloaded by attempt {offload.attempt.hex()}")
    elif offload.state != Offload.WANTED:
        raise NotWanted(f"{who} is not scheduled for offload")
    elif offload.attempt == attempt:
        raise AttemptOver(f"attempt {attempt.hex()} at {who} was given up: begin another one")
    offload.state = Offload.RUNNING
    offload.attempt = attempt
    offload.path = path
    offload.begun_ms = offload.heard_ms = now_ms
    return after


def complete(
    ledger: TopicLedger,
    *,
    attempt: bytes,
    entries: int,
    rows: int,
    raw_entries: int,
    object_bytes: int,
    manifest_sha256: bytes,
    now_ms: int,
) -> TopicLedger:
    """Completes the attempt: its objects are written and verified by reading them back.

    Raises CountsDiffer if they differ from the ledger, AttemptOver if another attempt replaced it, NotWanted
    if there was none.
    """
    after = _copy(ledger)
    offload = after.offload
    who = _named(ledger)
    if offload.state == Offload.COMPLETE and offload.attempt == attempt:
        if offload.manifest_sha256 != manifest_sha256:
            raise CountsDiffer(f"attempt {attempt.hex()} at {who} is complete with another manifest")
        return after
    _check_running(ledger, attempt)
    held = ledger.last_entry_id - ledger.first_entry_id + 1
    if entries != held:
        raise CountsDiffer(
            f"{who} has {held} entries, and {entries} were read back: its objects are not whole"
        )
    if not raw_entries <= entries <= rows:
        raise CountsDiffer(
            f"{rows} rows, {raw_entries} of them raw, cannot hold the {entries} entries of {who}: each entry "
            "has a row, a raw one exactly one"
        )
    if len(manifest_sha256) != SHA256_BYTES:
        raise CountsDiffer(f"a SHA-256 has {SHA256_BYTES} bytes, not {len(manifest_sha256)}")
    offload.state = Offload.COMPLETE
    offload.completed_ms = now_ms
    offload.rows = rows
    offload.raw_entries = raw_entries
    offload.object_bytes = object_bytes
    offload.manifest_sha256 = manifest_sha256
    offload.ClearField("error")
    return after


def fail(ledger: TopicLedger, *, attempt: bytes, reason: str, now_ms: int) -> TopicLedger:
    """Ends the attempt as failed; the ledger waits again, behind those already waiting.

    Raises AttemptOver if another attempt replaced it, OffloadedAlready if it is complete.
    """
    after = _copy(ledger)
    offload = after.offload
    if offload.state == Offload.WANTED and offload.attempt == attempt:
        return after
    if offload.state == Offload.COMPLETE and offload.attempt == attempt:
        raise OffloadedAlready(
            f"attempt {attempt.hex()} at {_named(ledger)} is complete: it cannot be given up"
        )
    _check_running(ledger, attempt)
    _want_again(offload, reason, now_ms)
    return after


def again(ledger: TopicLedger, *, attempt: bytes, error: str, now_ms: int) -> TopicLedger:
    """Schedules a new offload, because this attempt's complete objects are damaged and bookies still have the
    entries.

    Raises OnlyCopy if bookies no longer have them, AttemptOver if another attempt's objects are complete.
    """
    after = _copy(ledger)
    offload = after.offload
    if has_left_bookies(ledger):
        raise OnlyCopy(f"only its objects have the entries of {_named(ledger)}: restore {offload.path}")
    if offload.state == Offload.WANTED and offload.attempt == attempt:
        return after
    _check_complete(ledger, attempt)
    _want_again(offload, error, now_ms)
    return after


def leave(ledger: TopicLedger, *, attempt: bytes, now_ms: int) -> TopicLedger:
    """Marks the attempt's objects as the only copy: bookies may delete theirs once this is durable. Older
    releases then refuse the value.

    The caller must have verified every object. Raises AttemptOver unless this attempt's objects are the
    complete ones.
    """
    after = _copy(ledger)
    _check_complete(ledger, attempt)
    if not has_left_bookies(ledger):
        after.offload.left_bookies_ms = now_ms
        after.format.incompatible_features |= LEFT_BOOKIES
    return after


# --- internal ---


def _copy(ledger: TopicLedger) -> TopicLedger:
    after = TopicLedger()
    after.CopyFrom(ledger)
    return after


def _heard_ms(offload: Offload) -> int:
    return offload.heard_ms or offload.begun_ms


def _named(ledger: TopicLedger) -> str:
    return f"ledger {ledger.ref.id}"


def _check_attempt(attempt: bytes) -> None:
    if len(attempt) != ATTEMPT_BYTES:
        raise AttemptOver(f"an attempt is named by {ATTEMPT_BYTES} random bytes, not by {len(attempt)}")


def _check_running(ledger: TopicLedger, attempt: bytes) -> None:
    _check_attempt(attempt)
    offload = ledger.offload
    if offload.state == Offload.RUNNING and offload.attempt == attempt:
        return
    who = _named(ledger)
    if offload.state == Offload.STATE_UNSPECIFIED:
        raise NotWanted(f"{who} is not scheduled for offload, so attempt {attempt.hex()} never began")
    now = f"{Offload.State.Name(offload.state)}, its last attempt {offload.attempt.hex() or 'none'}"
    raise AttemptOver(f"attempt {attempt.hex()} at {who} is over: the ledger is {now}")


def _check_complete(ledger: TopicLedger, attempt: bytes) -> None:
    offload = ledger.offload
    if offload.state != Offload.COMPLETE or offload.attempt != attempt:
        raise AttemptOver(
            f"the objects of attempt {attempt.hex()} at {_named(ledger)} are not the complete ones"
        )


def _want_again(offload: Offload, error: str, now_ms: int) -> None:
    """Keeps the location; the path and attempt stay until another attempt begins, to show what failed."""
    kept = Offload(
        state=Offload.WANTED,
        attempt=offload.attempt,
        location=offload.location,
        path=offload.path,
        wanted_ms=now_ms,
        begun_ms=offload.begun_ms,
        failures=offload.failures + 1,
        error=error[:ERROR_CHARS_MAX],
        exact=offload.exact,
    )
    offload.CopyFrom(kept)

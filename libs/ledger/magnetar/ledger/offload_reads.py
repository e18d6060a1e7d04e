"""Reads a ledger's entries from a broker's offload service: in order, each once, without gaps, or an error.

After a broken stream, for example when its broker was killed, reading continues after the last complete run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from magnetar.common.errors import DataCorruption, MagnetarError, TooManyRequests
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import may_pass
from magnetar.ledger.bookie_protocol.record_stream import decode_records
from magnetar.ledger.ledger_store import LedgerRef, Run

ATTEMPTS_MAX: Final = 12
"""Maximum consecutive streams that break without delivering anything."""

BUSY_MAX: Final = 150
"""Maximum consecutive refusals because the broker has too many readers."""

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
"""Waits in seconds before the next stream, as (first, longest); doubling."""


def read_runs(
    channel: OffloadChannel,
    topic: str,
    ref: LedgerRef,
    first_entry_id: int,
    last_entry_id: int,
    *,
    sleep: Callable[[float], None],
) -> Iterator[Run]:
    """Yields entries `first_entry_id` to `last_entry_id` inclusive, as runs that begin and end within them.

    `sleep` waits for some seconds, as time.sleep does. Raises EntryUnreadable, NoSuchLedger, NoSuchEntry,
    OnlyCopy, DataCorruption; OffloadUnreachable while the broker stays unreachable, TooManyRequests while it
    stays busy.
    """
    following, failures, busy = first_entry_id, 0, 0
    while following <= last_entry_id:
        began_at = following
        try:
            stream = channel.read(topic, ref.id, ref.key, following, last_entry_id)
            with closing(stream):  # type: ignore[type-var]
                for records in stream:
                    for run in decode_records(records, ref):
                        if run.first_entry_id != following or run.last_entry_id > last_entry_id:
                            raise DataCorruption(
                                f"entries {ref.id}:{run.first_entry_id} to {run.last_entry_id} came where "
                                f"{following} to {last_entry_id} were asked for"
                            )
                        following = run.last_entry_id + 1
                        yield run
            if following <= last_entry_id:
                raise DataCorruption(
                    f"the entries of ledger {ref.id} ended before {following}; {last_entry_id} was asked for"
                )
        except MagnetarError as error:
            if following > began_at:
                failures = busy = 0
            elif isinstance(error, TooManyRequests):
                busy += 1
            else:
                failures += 1
            if not may_pass(error) or failures >= ATTEMPTS_MAX or busy >= BUSY_MAX:
                raise
            sleep(min(PAUSE_S * 2 ** min(failures + busy, 10), PAUSE_MAX_S))

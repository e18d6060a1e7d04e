"""The file `doubt` of a data directory: why data may be missing, and of which ledgers.

    why, in words
    only what torn groups held: 2 ledgers        (or: any ledger)
    12 00000000000000ab                          id and key of each
    13 00000000000000ac
    end 5d41402a                                 CRC32-C of everything before this line

Without the second line, or with anything that is not as it should be, every ledger that is not closed is in
doubt, as it is after an emptied disk. Earlier releases read no more than the file's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.torn_group import Torn

DOUBT: Final = "doubt"
_BYTES_MAX: Final = 64 << 20
_END: Final = re.compile(rb"end ([0-9a-f]{8})\n\Z")
_ONLY_TORN: Final = re.compile(r"only what torn groups held: (?:(\d+) ledgers|any ledger)")


@dataclass(frozen=True, slots=True)
class Note:
    """The content of the file."""

    reason: str
    torn: Torn | None = None
    """Ledgers with torn groups, if only those may have lost data; None if any data may be missing."""

    def encode(self) -> bytes:
        """Encodes the whole file."""
        lines = [" ".join(self.reason.split())]
        if self.torn is None:
            return f"{lines[0]}\n".encode()
        ledgers = self.torn.ledgers
        what = "any ledger" if ledgers is None else f"{len(ledgers)} ledgers"
        lines.append(f"only what torn groups held: {what}")
        lines += sorted(f"{ref.id} {ref.key:016x}" for ref in ledgers or ())
        text = "".join(f"{line}\n" for line in lines).encode()
        return text + f"end {crc32c(text):08x}\n".encode()


def decode_note(data: bytes) -> Note:
    """Decodes a note; an unreadable one means that any data may be missing."""
    end = _END.search(data)
    reason, _, rest = data.decode(errors="replace").partition("\n")
    if end is None or int(end[1], 16) != crc32c(data[: end.start()]):
        return Note(reason)
    what, *named, _ = rest.removesuffix("\n").split("\n")
    match = _ONLY_TORN.fullmatch(what)
    if match is None:
        return Note(reason)
    if match[1] is None:
        return Note(reason, Torn(None))
    refs = [LedgerRef(int(ledger_id), int(key, 16)) for ledger_id, key in (line.split() for line in named)]
    return Note(reason, Torn(frozenset(refs)) if len(refs) == int(match[1]) else None)


def joined_note(before: Note | None, after: Note) -> Note:
    """Combines two notes, neither of which has been handled."""
    if before is None:
        return after
    torn = before.torn.joined(after.torn) if before.torn and after.torn else None
    return Note(before.reason if before.reason == after.reason else f"{before.reason}; {after.reason}", torn)


def read_note(disk: Disk) -> Note | None:
    """Reads the note; None if there is none. Blocks; raises OSError."""
    if DOUBT not in disk.listdir(""):
        return None
    file = disk.open(DOUBT, writable=False)
    try:
        return decode_note(file.pread(_BYTES_MAX, 0))
    finally:
        file.close()

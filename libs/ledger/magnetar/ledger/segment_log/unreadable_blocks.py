"""Reads around blocks that a disk cannot read any more.

A lost sector is damage like a flipped bit: the checksums show what it affects, and nothing else is lost. So a
failed read is repeated block by block, and an unreadable block is returned as bytes that no checksum accepts.
They are not zeros, which would mean that nothing was written there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.disk import DiskFile
from magnetar.ledger.segment_log.codec_v1 import BLOCK
from prometheus_client import Counter

log = get_logger(__name__)

_FILLER: Final = b"\xee" * BLOCK
_MEDIUM_ERRORS: Final = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG})
"""Linux errors for a lost sector, or a checksum mismatch."""

READ_ERRORS = Counter(
    "magnetar_log_read_errors",
    "Reads of the log's files that the disk could not do; the blocks that it cannot read count as damaged.",
    registry=REGISTRY,
)


def is_unreadable(error: OSError) -> bool:
    """Returns whether a failed read means that the bytes are lost, rather than that the disk is unusable."""
    return error.errno in _MEDIUM_ERRORS


def read_around(
    file: DiskFile, path: str, length: int, offset: int, on_lost: Callable[[int], None] | None = None
) -> bytes:
    """Reads like `file.pread`, with filler in place of unreadable blocks; `on_lost` is called for each of
    them.

    Blocks. Raises OSError for any other failure.
    """
    try:
        return file.pread(length, offset)
    except OSError as error:
        if not is_unreadable(error):
            raise
    READ_ERRORS.inc()
    pieces: list[bytes] = []
    lost: list[int] = []
    at, end = offset, min(offset + length, file.size())
    while at < end:
        block = at // BLOCK * BLOCK
        wanted = min(block + BLOCK, end) - at
        try:
            pieces.append(file.pread(wanted, at))
        except OSError as error:
            if not is_unreadable(error):
                raise
            lost.append(block)
            pieces.append(_FILLER[:wanted])
        at += wanted
    if lost:
        log.error(
            "the disk cannot read a part of a file, which counts as damaged",
            path=path,
            offset=lost[0],
            blocks=len(lost),
        )
    for block in lost:
        if on_lost is not None:
            on_lost(block)
    return b"".join(pieces)

"""The identity of a data directory: its file and the cookie in metadata have to match.

    bookie-cookie:  0 8 magic "MGNTRBKE"   8 2 format version (1)   10 2 0   12 4 incompatible feature bits
                   16 8 generation   24 16 directory id   40 2 length of the instance id
                   42 2 length of the bookie id   44 .. instance id, bookie id (UTF-8)
                   then 4 CRC32-C of everything before it

The generation goes up with each start, here first and then in metadata: a directory whose generation is lower
than metadata's was restored from an older copy, and what it lost is unknown. A copy of the same start is told
by the log's end (`high_water`).

Callers name the bookie and the directory that they expect, since an address may belong to another bookie by
now: one disk never answers for two.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c
from magnetar.common.errors import (
    DataCorruption,
    MagnetarError,
    MetadataError,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import holds_deletion, read_restoration
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import BookieCookie, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.disk import Disk, replace_file
from magnetar.ledger.bookie_protocol.bookie_pb2 import ExpectedBookie
from magnetar.ledger.data_directory import COOKIE, WrongDataDirectory, read_identity
from magnetar.ledger.segment_log.codec_v1 import FORMAT_VERSION, check_format
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY

log = get_logger(__name__)

BOOKIE_COOKIE: Final = "bookie-cookie"
_MAGIC: Final = b"MGNTRBKE"
_HEADER = struct.Struct("<8sHHIQ16sHH")
_CRC = struct.Struct("<I")
_COOKIE_LOST: Final = (
    "put the file back from a copy of this directory, which may be an older one: the bookie then doubts what "
    "it has. Or empty the directory and start once with magnetarBookieAcceptEmptyDirectory=true: what it "
    "held is copied back from other bookies"
)


class NotThisBookie(MagnetarError):
    """The caller expects another bookie, or this bookie on another disk."""


class IdentityTaken(MetadataError):
    """Another process has later started as this bookie, with another directory or a copy of this one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity recorded in the data directory."""

    bookie_id: str
    instance_id: bytes
    directory_id: bytes
    generation: int

    def require(self, expected: ExpectedBookie) -> None:
        """Checks that a caller addresses this bookie and directory; fields that it leaves empty are not
        checked.

        Raises NotThisBookie.
        """
        if expected.bookie_id and expected.bookie_id != self.bookie_id:
            raise NotThisBookie(
                f"this is bookie {self.bookie_id!r}, and the caller expects {expected.bookie_id!r}: "
                "its address belongs to another bookie by now"
            )
        if expected.directory_id and expected.directory_id != self.directory_id:
            raise NotThisBookie(
                f"bookie {self.bookie_id!r} has data directory {self.directory_id.hex()}, and the caller "
                f"expects {expected.directory_id.hex()}: the bookie has another disk by now"
            )


def encode_identity(identity: Identity) -> bytes:
    """Encodes the whole file."""
    name = identity.bookie_id.encode()
    lengths = len(identity.instance_id), len(name)
    data = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, 0, identity.generation, identity.directory_id, *lengths)
    data += identity.instance_id + name
    return data + _CRC.pack(crc32c(data))


def decode_identity(data: bytes) -> Identity:
    """Decodes the file. Raises UnsupportedFormat or DataCorruption."""
    if len(data) < _HEADER.size + _CRC.size or data[:8] != _MAGIC:
        raise DataCorruption(f"{BOOKIE_COOKIE} in the data directory is no bookie's cookie")
    _, version, _, features, generation, directory_id, instance_length, name_length = _HEADER.unpack_from(
        data
    )
    check_format(version, features, "the bookie's data directory")
    split = _HEADER.size + instance_length
    end = split + name_length
    if len(data) != end + _CRC.size or _CRC.unpack_from(data, end)[0] != crc32c(data[:end]):
        raise DataCorruption(f"{BOOKIE_COOKIE} in the data directory is damaged")
    return Identity(data[split:end].decode(), data[_HEADER.size : split], directory_id, generation)


async def claim_directory(
    disk: Disk,
    pool: BlockingPool,
    metadata: MetadataStore,
    keys: Keys,
    *,
    bookie_id: str,
    instance_id: bytes,
    rng: random.Random,
    now_ms: int,
    accept_empty_directory: bool,
    note_doubt: Callable[[str], None],
) -> Identity:
    """Checks that the directory and metadata's cookie match, and returns them with a new generation.

    `note_doubt(reason)` is called, in the pool, before any change if data may be missing: the directory was
    restored from a copy, or is empty and accepted. Raises WrongDataDirectory with what to do, DataCorruption,
    UnsupportedFormat, MetadataError, OSError.
    """
    here, has_data, is_local_store = await pool.run(lambda: _look(disk))
    key = keys.cookie(bookie_id)
    found = await metadata.get(key)
    there = None if found is None else decode(BookieCookie, found.value)
    if is_local_store:
        raise WrongDataDirectory("the data directory is a standalone's: give the bookie one of its own")
    if here is not None:
        _check_is_ours(here, bookie_id, instance_id)
    fresh = here is None or (not has_data and there is not None and there.directory_id != here.directory_id)
    doubt = ""
    if fresh:
        if has_data:
            raise WrongDataDirectory(
                f"the data directory holds segments but no {BOOKIE_COOKIE}: it was not copied as a whole. "
                "Restore all of it, or start with an empty directory"
            )
        if there is not None:
            doubt = f"bookie {bookie_id} had data and the data directory is empty"
            if not accept_empty_directory:
                raise WrongDataDirectory(
                    f"{doubt} (a disk that is not mounted?). If its data is lost for good, start once with "
                    "magnetarBookieAcceptEmptyDirectory=true: what it held is copied back from other bookies"
                )
        identity = Identity(bookie_id, instance_id, rng.randbytes(16), 0)
    else:
        assert here is not None, "a directory without a cookie is fresh"
        identity = here
        if there is None and has_data:
            if not holds_deletion(await read_restoration(metadata, keys)):
                raise WrongDataDirectory(
                    f"metadata has no cookie of bookie {bookie_id}, whose data this is: it was "
                    "decommissioned, or metadata was lost. Start with an empty directory, or restore metadata"
                )
            log.warning(
                "metadata was restored and did not know this bookie: it is taken in", bookie=bookie_id
            )
        if there is not None and there.directory_id != here.directory_id:
            # A start with an emptied disk continues from the generation in metadata.
            newer = here.generation > there.generation
            if newer and holds_deletion(await read_restoration(metadata, keys)):
                doubt = "metadata was restored, and from before this bookie's disk was replaced"
        if there is not None and there.directory_id != here.directory_id and not doubt:
            raise WrongDataDirectory(
                f"bookie {bookie_id} has its data in another directory ({there.directory_id.hex()}; this one "
                f"is {here.directory_id.hex()}): start it with that one, or give this one another bookieId"
            )
        if there is not None and here.generation < there.generation:
            doubt = (
                f"the data directory was restored from a copy: it is of start {here.generation}, metadata "
                f"knows of start {there.generation}"
            )
    if doubt:
        await pool.run(lambda: note_doubt(doubt))
    generation = max(identity.generation, 0 if there is None else there.generation) + 1
    identity = replace(identity, generation=generation)
    await pool.run(lambda: replace_file(disk, BOOKIE_COOKIE, encode_identity(identity)))
    cookie = BookieCookie(
        bookie_id=bookie_id,
        directory_id=identity.directory_id,
        created_ms=now_ms if there is None or fresh else there.created_ms,
        generation=generation,
    )
    await _put(metadata, key, encode(cookie), ABSENT if found is None else found.version)
    return identity


async def require_latest_start(metadata: MetadataStore, keys: Keys, identity: Identity) -> None:
    """Checks that no other process has started as this bookie after this one.

    Raises IdentityTaken, or MetadataError while that is unknown.
    """
    found = await metadata.get(keys.cookie(identity.bookie_id))
    there = None if found is None else decode(BookieCookie, found.value)
    if there is not None and there.generation > identity.generation:
        raise IdentityTaken(
            f"another process has started as bookie {identity.bookie_id} since: start {there.generation} "
            f"with directory {there.directory_id.hex()}, this one is start {identity.generation} with "
            f"{identity.directory_id.hex()}. Stop it, or give it another bookieId and an empty directory"
        )


def _look(disk: Disk) -> tuple[Identity | None, bool, bool]:
    names = disk.listdir("")
    has_data = bool(disk.listdir(SEGMENTS_DIRECTORY))
    if BOOKIE_COOKIE not in names:
        return None, has_data, COOKIE in names
    return read_identity(disk, BOOKIE_COOKIE, decode_identity, _COOKIE_LOST), has_data, False


def _check_is_ours(here: Identity, bookie_id: str, instance_id: bytes) -> None:
    if here.instance_id != instance_id:
        raise WrongDataDirectory(
            f"the data directory belongs to instance {here.instance_id.hex()}, the metadata is of instance "
            f"{instance_id.hex()}: check clusterName and metadataServiceUri, or use another directory"
        )
    if here.bookie_id != bookie_id:
        raise WrongDataDirectory(
            f"the data directory belongs to bookie {here.bookie_id!r}, this one is {bookie_id!r}: set "
            "bookieId, which must not change, or use another directory"
        )


async def _put(metadata: MetadataStore, key: str, value: bytes, version: int) -> None:
    try:
        await metadata.put(key, value, version)
    except VersionMismatch as error:
        raise WrongDataDirectory(
            f"another process starts as this bookie at this moment: {key} changed meanwhile"
        ) from error
    except UnknownOutcome:
        found = await metadata.get(key)
        if found is None or found.value != value:
            raise

"""The manifest of an offloaded ledger: the list of its parts and their contents.

A JSON object, written after every part is complete; its SHA-256 is in metadata, so that only verified content
counts. Keys added by later releases are ignored, a later `format_version` is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar.common.errors import DataCorruption

FORMAT_VERSION: Final = 1

PARTS_MAX: Final = 100_000
"""Maximum parts of one ledger, limited by the sortable part names."""

_PART_NAME: Final = re.compile(r"part-[0-9]{5}\.parquet")
_INT64_MAX: Final = 2**63 - 1
_UINT64_MAX: Final = 2**64 - 1
_UINT32_MAX: Final = 2**32 - 1


class ManifestInvalid(DataCorruption):
    """This release cannot use the manifest; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One Parquet object of consecutive entries."""

    name: str
    """Within the attempt's directory."""
    first_entry_id: int
    last_entry_id: int
    rows: int
    entries: int
    raw_entries: int
    """Entries stored as one raw row each: encrypted, or undecodable."""
    byte_length: int
    """Size of the object."""
    sha256: bytes
    """Digest of the object."""
    payload_crc32c: int
    """CRC32-C of the payloads of all rows, concatenated."""
    payload_bytes: int
    raw_crc32c: int
    """CRC32-C of the raw entries of all rows, concatenated."""
    raw_bytes: int
    footer_crc32c: int = 0
    """CRC32-C of the object's last `footer_bytes`, which readers read first and always check."""
    footer_bytes: int = 0
    """Length of that footer in bytes; 0 if the CRC is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The objects that an attempt wrote for one ledger."""

    topic: str
    """Full name, of the partition."""
    creation_id: int
    """Creation id of the topic, which distinguishes topics of the same name."""
    ledger_id: int
    ledger_key: int
    attempt: bytes
    first_entry_id: int
    last_entry_id: int
    """The last entry id; -1 for an empty ledger."""
    entries: int
    rows: int
    raw_entries: int
    first_index: int
    """Topic-wide index of its first message."""
    max_publish_time_ms: int
    """The latest time at which the broker accepted an entry, ms since 1970 UTC."""
    exact: bool
    """Rows keep the bytes of their entries verbatim."""
    parts: tuple[Part, ...]
    created_ms: int
    release: str
    """Version of Magnetar that wrote it."""
    format_version: int = FORMAT_VERSION

    @property
    def object_bytes(self) -> int:
        """Bytes of all parts together."""
        return sum(part.byte_length for part in self.parts)

    def part_of(self, entry_id: int) -> int:
        """Returns the index in `parts` of the part with an entry; raises IndexError without one."""
        low, high = 0, len(self.parts)
        while low < high:
            middle = (low + high) // 2
            if self.parts[middle].last_entry_id < entry_id:
                low = middle + 1
            else:
                high = middle
        if low == len(self.parts) or entry_id < self.parts[low].first_entry_id:
            raise IndexError(f"ledger {self.ledger_id} ends at entry {self.last_entry_id}, not {entry_id}")
        return low

    def to_json(self) -> bytes:
        """Returns the canonical JSON bytes: equal manifests give equal bytes. Raises ManifestInvalid."""
        _check(self)
        # Random 64-bit numbers as text: most JSON readers keep 53 bits of a number.
        value: dict[str, Any] = {
            "format_version": self.format_version,
            "topic": self.topic,
            "creation_id": str(self.creation_id),
            "ledger_id": self.ledger_id,
            "ledger_key": str(self.ledger_key),
            "attempt": self.attempt.hex(),
            "first_entry_id": self.first_entry_id,
            "last_entry_id": self.last_entry_id,
            "entries": self.entries,
            "rows": self.rows,
            "raw_entries": self.raw_entries,
            "first_index": self.first_index,
            "max_publish_time_ms": self.max_publish_time_ms,
            "exact": self.exact,
            "created_ms": self.created_ms,
            "release": self.release,
            "parts": [
                {
                    "name": part.name,
                    "first_entry_id": part.first_entry_id,
                    "last_entry_id": part.last_entry_id,
                    "rows": part.rows,
                    "entries": part.entries,
                    "raw_entries": part.raw_entries,
                    "byte_length": part.byte_length,
                    "sha256": part.sha256.hex(),
                    "payload_crc32c": part.payload_crc32c,
                    "payload_bytes": part.payload_bytes,
                    "raw_crc32c": part.raw_crc32c,
                    "raw_bytes": part.raw_bytes,
                    "footer_crc32c": part.footer_crc32c,
                    "footer_bytes": part.footer_bytes,
                }
                for part in self.parts
            ],
        }
        return json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"

    @staticmethod
    def from_json(data: bytes) -> Manifest:
        """Parses a manifest. Raises ManifestInvalid."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ManifestInvalid(f"a manifest that is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ManifestInvalid(f"a manifest that is a JSON {type(value).__name__}, not an object")
        version = _number(value, "format_version", _UINT32_MAX)
        if version != FORMAT_VERSION:
            raise ManifestInvalid(
                f"a manifest of format version {version}; this release reads version {FORMAT_VERSION}. "
                "Run the release that wrote it, or a later one"
            )
        parts = value.get("parts")
        if not isinstance(parts, list) or len(parts) > PARTS_MAX:
            raise ManifestInvalid(f"a manifest without a list of at most {PARTS_MAX} parts")
        manifest = Manifest(
            topic=_text(value, "topic"),
            creation_id=_decimal(value, "creation_id"),
            ledger_id=_number(value, "ledger_id"),
            ledger_key=_decimal(value, "ledger_key"),
            attempt=_hex(value, "attempt", 16),
            first_entry_id=_number(value, "first_entry_id"),
            last_entry_id=_number(value, "last_entry_id", least=-1),
            entries=_number(value, "entries"),
            rows=_number(value, "rows"),
            raw_entries=_number(value, "raw_entries"),
            first_index=_number(value, "first_index"),
            max_publish_time_ms=_number(value, "max_publish_time_ms"),
            exact=_flag(value, "exact"),
            parts=tuple(_part(part) for part in parts),
            created_ms=_number(value, "created_ms"),
            release=_text(value, "release"),
        )
        _check(manifest)
        return manifest


def _part(value: Any) -> Part:
    if not isinstance(value, dict):
        raise ManifestInvalid(f"a manifest with a part that is a JSON {type(value).__name__}, not an object")
    return Part(
        name=_text(value, "name"),
        first_entry_id=_number(value, "first_entry_id"),
        last_entry_id=_number(value, "last_entry_id"),
        rows=_number(value, "rows"),
        entries=_number(value, "entries"),
        raw_entries=_number(value, "raw_entries"),
        byte_length=_number(value, "byte_length"),
        sha256=_hex(value, "sha256", 32),
        payload_crc32c=_number(value, "payload_crc32c", _UINT32_MAX),
        payload_bytes=_number(value, "payload_bytes"),
        raw_crc32c=_number(value, "raw_crc32c", _UINT32_MAX),
        raw_bytes=_number(value, "raw_bytes"),
        footer_crc32c=_number(value, "footer_crc32c", _UINT32_MAX),
        footer_bytes=_number(value, "footer_bytes", _UINT32_MAX),
    )


def _check(manifest: Manifest) -> None:
    """Checks that the numbers are consistent: no gap, no overlap, correct sums."""
    what = f"the manifest of ledger {manifest.ledger_id}"
    if len(manifest.attempt) != 16:
        raise ManifestInvalid(f"{what} has an attempt of {len(manifest.attempt)} bytes, not 16")
    following = manifest.first_entry_id
    for part in manifest.parts:
        if _PART_NAME.fullmatch(part.name) is None:
            raise ManifestInvalid(f"{what} has a part named {part.name!r}")
        if part.first_entry_id != following:
            raise ManifestInvalid(
                f"{what} has {part.name} from entry {part.first_entry_id}, expected {following}"
            )
        following = part.last_entry_id + 1
        if part.entries != following - part.first_entry_id or part.entries < 1:
            raise ManifestInvalid(
                f"{what} says that {part.name} has {part.entries} entries, from {part.first_entry_id} "
                f"to {part.last_entry_id}"
            )
        if part.footer_bytes > part.byte_length:
            raise ManifestInvalid(f"{what} says that {part.name} has a footer longer than it is")
        if not part.raw_entries <= part.entries <= part.rows:
            raise ManifestInvalid(f"{what} says that {part.name} has {part.rows} rows of {part.entries}")
    if following != manifest.last_entry_id + 1:
        raise ManifestInvalid(f"{what} ends at entry {manifest.last_entry_id}, its parts at {following - 1}")
    if len({part.name for part in manifest.parts}) != len(manifest.parts):
        raise ManifestInvalid(f"{what} names a part twice")
    for name in ("entries", "rows", "raw_entries"):
        told, found = getattr(manifest, name), sum(getattr(part, name) for part in manifest.parts)
        if told != found:
            raise ManifestInvalid(f"{what} says {told} {name}, its parts have {found}")


def _wrong(value: Mapping[str, Any], name: str, expected: str) -> ManifestInvalid:
    found = repr(value[name])[:60] if name in value else "missing"
    return ManifestInvalid(f"a manifest whose {name} is {found}, expected {expected}")


def _number(value: Mapping[str, Any], name: str, most: int = _INT64_MAX, *, least: int = 0) -> int:
    number = value.get(name)
    if type(number) is not int or not least <= number <= most:
        raise _wrong(value, name, f"a number from {least} to {most}")
    return number


def _decimal(value: Mapping[str, Any], name: str) -> int:
    text = value.get(name)
    if not isinstance(text, str) or re.fullmatch(r"[0-9]{1,20}", text) is None or int(text) > _UINT64_MAX:
        raise _wrong(value, name, "a number of 64 bits in quotes")
    return int(text)


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise _wrong(value, name, "text")
    return text


def _flag(value: Mapping[str, Any], name: str) -> bool:
    flag = value.get(name)
    if not isinstance(flag, bool):
        raise _wrong(value, name, "true or false")
    return flag


def _hex(value: Mapping[str, Any], name: str, size: int) -> bytes:
    text = value.get(name)
    if not isinstance(text, str) or re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", text) is None:
        raise _wrong(value, name, f"{size} bytes in hexadecimal")
    return bytes.fromhex(text)

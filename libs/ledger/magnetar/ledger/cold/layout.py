"""Where the objects of offloaded ledgers lie, below a location (a URI such as s3://bucket/prefix).

    <tenant>/<namespace>/<topic>/ledger=<id>/attempt=<32 hex>/part-00000.parquet ...
                                                              _manifest.json        written last

Each attempt has a directory of its own, so that two jobs never write the same object. Spark and DuckDB see
`ledger` and `attempt` as partition columns and skip what begins with '_'; so names are escaped where they
would be hidden, taken for a partition column or a pattern: bytes other than letters, digits, '-', '_' and '.'
as '!' and two hex digits (not '%': some readers decode that in URIs, others do not).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.columns import COLUMNS as COLUMNS
from magnetar.ledger.cold.columns import Column as Column
from magnetar.ledger.cold.columns import ColumnType as ColumnType
from magnetar.ledger.cold.manifest import FORMAT_VERSION as FORMAT_VERSION
from magnetar.ledger.cold.manifest import Manifest as Manifest
from magnetar.ledger.cold.manifest import ManifestInvalid as ManifestInvalid
from magnetar.ledger.cold.manifest import Part as Part

MANIFEST_NAME: Final = "_manifest.json"

ATTEMPT_BYTES: Final = 16

FILE_FORMAT: Final = "magnetar.format"
FILE_TOPIC: Final = "magnetar.topic"
FILE_LEDGER: Final = "magnetar.ledger"
FILE_FIRST_ENTRY: Final = "magnetar.first_entry"
FILE_LAST_ENTRY: Final = "magnetar.last_entry"
FILE_ROWS: Final = "magnetar.rows"
FILE_ENTRIES: Final = "magnetar.entries"
FILE_RAW_ENTRIES: Final = "magnetar.raw_entries"
FILE_METADATA: Final = (
    FILE_FORMAT,
    FILE_TOPIC,
    FILE_LEDGER,
    FILE_FIRST_ENTRY,
    FILE_LAST_ENTRY,
    FILE_ROWS,
    FILE_ENTRIES,
    FILE_RAW_ENTRIES,
)
"""Keys of a part's Parquet metadata; all values are text, numbers decimal."""

SEGMENT_CHARS_MAX: Final = 200
"""Maximum characters of an escaped name; file systems allow 255. A longer one is truncated and gets a hash.
"""

_CUT_CHARS: Final = 120
_CUT_MARK: Final = "!-"
_SAFE: Final = frozenset(b"-_.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_HIDING: Final = b"_."
_SEGMENT: Final = r"(?:[-.\w]|![0-9A-F]{2}|!-)+"
_ATTEMPT_PATH: Final = re.compile(
    rf"({_SEGMENT})/({_SEGMENT})/({_SEGMENT})/ledger=(0|[1-9][0-9]{{0,18}})/attempt=([0-9a-f]{{32}})",
    re.ASCII,
)
_ESCAPED: Final = re.compile(r"!([0-9A-F]{2})")
_CUT_ESCAPE: Final = re.compile(r"![0-9A-F]?$")


@dataclass(frozen=True, slots=True)
class AttemptPath:
    """The parts of an attempt's path."""

    tenant: str
    namespace: str
    local_name: str
    """Name of the topic; truncated with a hash where it is very long (then `exact` is false)."""
    ledger_id: int
    attempt: bytes
    exact: bool


def escape(name: str) -> str:
    """Escapes a name as one path segment; different names give different segments."""
    encoded = name.encode()
    parts = [chr(byte) if byte in _SAFE else f"!{byte:02X}" for byte in encoded]
    if encoded[:1] and encoded[0] in _HIDING:
        parts[0] = f"!{encoded[0]:02X}"
    escaped = "".join(parts)
    if len(escaped) <= SEGMENT_CHARS_MAX:
        return escaped
    beginning = _CUT_ESCAPE.sub("", escaped[:_CUT_CHARS])
    return beginning + _CUT_MARK + hashlib.sha256(encoded).hexdigest()


def unescape(segment: str) -> str:
    """Returns the name of a segment; for a truncated one, its beginning and hash. Raises ValueError."""
    name, mark, digest = segment.partition(_CUT_MARK)
    encoded = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name).encode("latin-1")
    return encoded.decode(errors="ignore" if mark else "strict") + mark + digest


def topic_path(topic: TopicName) -> str:
    """Returns the directory of a topic's ledgers, relative to the location."""
    return "/".join((escape(topic.tenant), escape(topic.namespace.namespace), escape(topic.local_name)))


def attempt_path(topic: TopicName, ledger_id: int, attempt: bytes) -> str:
    """Returns the directory of an attempt's objects, relative to the location, without leading or trailing
    '/'.
    """
    assert len(attempt) == ATTEMPT_BYTES, "an attempt is 16 random bytes"
    assert topic.persistent, "only persistent topics have ledgers"
    return f"{topic_path(topic)}/ledger={ledger_id}/attempt={attempt.hex()}"


def parse_attempt_path(path: str) -> AttemptPath | None:
    """Parse the path of an attempt's directory; None for any other path."""
    found = _ATTEMPT_PATH.fullmatch(path)
    if found is None:
        return None
    try:
        tenant, namespace, local_name = (unescape(segment) for segment in found.group(1, 2, 3))
    except ValueError:
        return None
    return AttemptPath(
        tenant, namespace, local_name, int(found[4]), bytes.fromhex(found[5]), _CUT_MARK not in found[0]
    )


def part_name(number: int) -> str:
    """Returns the name of a part, counted from 0; names sort like their entries."""
    return f"part-{number:05d}.parquet"

"""Ownership marker of a location: a small object at its root with the instance id of one cluster's metadata.

Only the metadata of the cluster that wrote the objects can decide which are unused. Another cluster's
metadata lists none of them, so a sweep based on it would delete them all. So a job marks a location before it
writes and checks the marker before its objects count, and a sweep checks it before any deletion.

The marker is written once. Jobs of two clusters that find none at the same moment both write; the second
marker stays, and the other job detects that before its objects count.
"""

from __future__ import annotations

import json
from typing import Final, Protocol

from magnetar.ledger.cold.objects import NoSuchObject, ObjectStoreError

MARKER_NAME: Final = "_magnetar.json"
"""Name of the marker, hidden from tools that read every Parquet file below the location."""

INSTANCE_BYTES: Final = 16

NO_MARKER: Final = (
    f"the owner of these objects is unknown, since there is no {MARKER_NAME}: the next job that offloads "
    "something to this location writes it; or run `magnetar offload sweep --force` when they are certainly "
    "this cluster's"
)

_FORMAT_VERSION: Final = 1
_BYTES_MAX: Final = 4_096


class LocationNotOurs(ObjectStoreError):
    """The location belongs to another cluster, or its owner is unknown; the message says what to do."""


class MarkedStore(Protocol):
    """The objects at a location (`magnetar.ledger.cold.objects.ObjectStore`); calls block."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Reads a part of an object. Raises NoSuchObject, ObjectStoreError."""
        ...

    def put_bytes(self, path: str, data: bytes) -> None:
        """Writes an object. Raises ObjectStoreError."""
        ...


class ReadableStore(Protocol):
    """The read-only part of MarkedStore."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Reads a part of an object. Raises NoSuchObject, ObjectStoreError."""
        ...


def encode_marker(instance_id: bytes) -> bytes:
    """Encode the marker object."""
    text = json.dumps({"format_version": _FORMAT_VERSION, "instance": instance_id.hex()}, sort_keys=True)
    return f"{text}\n".encode()


def owner_of(store: ReadableStore) -> bytes | None:
    """Returns the instance id of the location's cluster; None if no job has marked it.

    Raises LocationNotOurs if the marker is invalid, ObjectStoreError.
    """
    try:
        data = store.read(MARKER_NAME, 0, _BYTES_MAX)
    except NoSuchObject:
        return None
    try:
        said = json.loads(data)
        version, instance_id = int(said["format_version"]), bytes.fromhex(said["instance"])
    except (ValueError, TypeError, KeyError) as error:
        raise LocationNotOurs(f"{MARKER_NAME} there cannot be read: restore it, or delete it") from error
    if version != _FORMAT_VERSION or len(instance_id) != INSTANCE_BYTES:
        raise LocationNotOurs(f"{MARKER_NAME} there is of a newer release: use that one")
    return instance_id


def claim(store: MarkedStore, instance_id: bytes) -> None:
    """Marks a location for this cluster, unless already marked.

    Raises LocationNotOurs if it belongs to another cluster, ObjectStoreError.
    """
    owner = owner_of(store)
    if owner is None:
        store.put_bytes(MARKER_NAME, encode_marker(instance_id))
        owner = owner_of(store)
    if owner != instance_id:
        raise LocationNotOurs(_of_another(owner, instance_id))


def check(store: ReadableStore, instance_id: bytes, *, may_lack: bool = False) -> None:
    """Checks that this cluster owns a location, so that its metadata may decide about deletions there.

    Raises LocationNotOurs otherwise (or without a marker, unless `may_lack`), ObjectStoreError.
    """
    owner = owner_of(store)
    if owner is None:
        if not may_lack:
            raise LocationNotOurs(NO_MARKER)
    elif owner != instance_id:
        raise LocationNotOurs(_of_another(owner, instance_id))


def _of_another(owner: bytes | None, instance_id: bytes) -> str:
    return (
        f"the location is another cluster's: its {MARKER_NAME} names the instance "
        f"{owner.hex() if owner else 'none'}, and this cluster's is {instance_id.hex() or 'not told'}; ask "
        "that one's brokers, and give each cluster a location of its own"
    )

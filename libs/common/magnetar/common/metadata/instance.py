"""The instance id: a random name of one set of metadata, recorded in all data stored elsewhere."""

from __future__ import annotations

import random

from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import require_whole
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import InstanceId, decode, encode
from magnetar.common.runtime.clock import Clock


async def ensure_instance_id(metadata: MetadataStore, keys: Keys, clock: Clock, rng: random.Random) -> bytes:
    """Returns the id of this metadata; the first process to start creates it.

    Raises MetadataError, also while the metadata is only partly restored.
    """
    await require_whole(metadata, keys)
    found = await metadata.get(keys.instance_id)
    if found is None:
        made = InstanceId(uuid=rng.randbytes(16), created_ms=clock.wall_ms())
        try:
            await metadata.put(keys.instance_id, encode(made), ABSENT)
        except (VersionMismatch, UnknownOutcome):
            pass  # whatever is there now is the id
        found = await metadata.get(keys.instance_id)
        if found is None:
            raise MetadataError("the instance id could not be written")
    return decode(InstanceId, found.value).uuid


async def read_instance_id(metadata: MetadataStore, keys: Keys) -> bytes:
    """Returns the id of this metadata; empty if it was not created yet. Raises MetadataError."""
    found = await metadata.get(keys.instance_id)
    return b"" if found is None else decode(InstanceId, found.value).uuid


async def require_instance(metadata: MetadataStore, keys: Keys, instance_id: bytes) -> None:
    """Checks that this is still the complete metadata with which the process started.

    Raises MetadataError if it is empty, partly restored or another cluster's. A process that continued with
    it would confirm writes that a restored backup does not know.
    """
    await require_whole(metadata, keys)
    now = await read_instance_id(metadata, keys)
    if now != instance_id:
        what = f"is of instance {now.hex()}" if now else "is empty"
        raise MetadataError(
            f"metadata {what}, and was of instance {instance_id.hex()} when this process started: it was "
            "lost or replaced. Put a copy of it back (docs/backup.md), or, if it is right as it is, restart "
            "this process"
        )

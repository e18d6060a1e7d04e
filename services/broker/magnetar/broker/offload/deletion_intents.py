"""Recorded intents to delete the objects of deleted ledgers; brokers and `offload sweep` execute them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.common.errors import (
    BeingChanged,
    DataCorruption,
    NotAllowed,
    UnsupportedFormat,
    VersionMismatch,
)
from magnetar.common.metadata.instance import read_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Intent, decode
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_pb2 import Deletion, DeletionsResponse
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

log = get_logger(__name__)

DELETIONS_MAX: Final = 1_000
"""Maximum deletions in one response."""


async def recorded_deletions(
    metadata: MetadataStore, keys: Keys, after_intent_id: str = ""
) -> AsyncIterator[Deletion]:
    """Yields every recorded deletion of objects, in the order of their intents, after a given one. Raises
    MetadataError.
    """
    behind = keys.intent(after_intent_id) if after_intent_id else ""
    async for item in iterate_cooperatively((await metadata.children(keys.intents_prefix)).items):
        if item.key <= behind:
            continue
        try:
            intent = decode(Intent, item.value)
        except (DataCorruption, UnsupportedFormat) as error:
            log.error("cannot read an intent", intent=item.key, reason=str(error))
            continue
        if intent.WhichOneof("target") == "delete_objects":
            objects = intent.delete_objects
            yield Deletion(intent_id=intent.id, location=objects.location, path=objects.path)


async def object_deletions(
    metadata: MetadataStore,
    keys: Keys,
    location: str,
    after_intent_id: str = "",
    most: int = DELETIONS_MAX,
) -> DeletionsResponse:
    """Returns one page of recorded deletions, at one location or ("") anywhere. Raises MetadataError."""
    location = location.rstrip("/")
    response = DeletionsResponse(instance_id=await read_instance_id(metadata, keys))
    async for deletion in recorded_deletions(metadata, keys, after_intent_id):
        if location not in ("", deletion.location):
            continue
        if len(response.deletions) >= most:
            response.more = True
            break
        response.deletions.append(deletion)
    return response


async def objects_deleted(metadata: MetadataStore, keys: Keys, intent_id: str) -> None:
    """Deletes the record of an executed deletion; does nothing when it does not exist.

    Raises NotAllowed when the intent is of another kind, BeingChanged, MetadataError.
    """
    found = await metadata.get(keys.intent(intent_id))
    if found is None:
        return
    if decode(Intent, found.value).WhichOneof("target") != "delete_objects":
        raise NotAllowed(f"intent {intent_id[:200]!r} is not about objects: brokers execute it themselves")
    try:
        await metadata.delete(found.key, found.version)
    except VersionMismatch as error:
        raise BeingChanged(f"intent {intent_id[:200]!r} was changed meanwhile: {error}") from error

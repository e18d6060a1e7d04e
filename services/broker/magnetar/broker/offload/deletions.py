"""Objects of ledgers that are gone: recorded intents to delete them, which whoever sweeps carries out."""

from __future__ import annotations

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

log = get_logger(__name__)

DELETIONS_MAX: Final = 1_000
"""In one answer."""


async def object_deletions(
    metadata: MetadataStore, keys: Keys, location: str, most: int = DELETIONS_MAX
) -> DeletionsResponse:
    """Recorded deletions of objects, at one location or ("") anywhere. Raises MetadataError."""
    location = location.rstrip("/")
    response = DeletionsResponse(instance_id=await read_instance_id(metadata, keys))
    for item in (await metadata.children(keys.intents_prefix)).items:
        try:
            intent = decode(Intent, item.value)
        except (DataCorruption, UnsupportedFormat) as error:
            log.error("an intent cannot be read", intent=item.key, reason=str(error))
            continue
        objects = intent.delete_objects
        if intent.WhichOneof("target") != "delete_objects" or location not in ("", objects.location):
            continue
        if len(response.deletions) >= most:
            response.more = True
            break
        response.deletions.append(Deletion(intent_id=intent.id, location=objects.location, path=objects.path))
    return response


async def objects_deleted(metadata: MetadataStore, keys: Keys, intent_id: str) -> None:
    """Forget a deletion that was carried out; nothing to do when it is forgotten already.

    Raises NotAllowed when the intent is of another kind, BeingChanged, MetadataError.
    """
    found = await metadata.get(keys.intent(intent_id))
    if found is None:
        return
    if decode(Intent, found.value).WhichOneof("target") != "delete_objects":
        raise NotAllowed(f"intent {intent_id[:200]!r} is not about objects: brokers carry it out themselves")
    try:
        await metadata.delete(found.key, found.version)
    except VersionMismatch as error:
        raise BeingChanged(f"intent {intent_id[:200]!r} was changed meanwhile: {error}") from error

"""Attempts whose objects must not be deleted: running and completed ones, according to metadata."""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import AttemptsRequest, AttemptsResponse
from magnetar.common.offload.offload_refusals import BadLocation
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_state import names_objects

PATHS_MAX: Final = 10_000
PATHS_BYTES_MAX: Final = 2 << 20
"""Maximum bytes of paths in one response; the last topic is always included completely."""


async def attempts_at(ledgers: OffloadLedgers, request: AttemptsRequest) -> AttemptsResponse:
    """Returns one page of attempts; see proto/offload. Raises BadLocation, InvalidName, MetadataError.

    A sweep lists objects first, then requests the attempts of all topics, and skips recent objects: an
    attempt that begins while topics are read may be missing here.
    """
    location = request.location.rstrip("/")
    if location and "://" not in location:
        raise BadLocation(
            f"invalid location {request.location[:200]!r}: use one recorded in metadata, such as "
            "s3://bucket/prefix"
        )
    after = TopicName.parse(request.after_topic) if request.after_topic else None
    response = AttemptsResponse(complete=await ledgers.knows_all())
    byte_length = 0
    async for found in ledgers.everywhere(after):
        if found.unreadable:
            response.complete = False
        for ledger in found.ledgers:
            offload = ledger.offload
            if names_objects(ledger):
                path = path_below(location, offload.location, offload.path) if location else offload.path
                if path is not None:
                    response.paths.append(path)
                    byte_length += len(path)
        if len(response.paths) >= PATHS_MAX or byte_length >= PATHS_BYTES_MAX:
            response.next_after_topic = found.topic.full
            break
    return response


def path_below(location: str, its_location: str, path: str) -> str | None:
    """Returns the path relative to another location; None when it does not lie below that location."""
    if its_location == location:
        return path
    if its_location.startswith(location + "/"):
        return f"{its_location[len(location) + 1 :]}/{path}"
    return None

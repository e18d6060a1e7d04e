"""Answers of a broker to requests: which request one belongs to, and whether it refuses."""

from __future__ import annotations

from typing import Any, Final

from magnetar.client.errors import Refused, refusal
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)

_FIELDS: Final = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}
_WITH_ERROR: Final = frozenset(
    {
        "tcClientConnectResponse",
        "newTxnResponse",
        "addPartitionToTxnResponse",
        "addSubscriptionToTxnResponse",
        "endTxnResponse",
        "ackResponse",
    }
)
"""Answers with the fields `error` and `message`."""
_WITH_ERROR_CODE: Final = frozenset(
    {"getSchemaResponse", "getOrCreateSchemaResponse", "consumerStatsResponse"}
)
"""Answers with the fields `error_code` and `error_message`."""


def field_of(command: BaseCommand) -> str:
    """Returns the name of the field that holds the command."""
    return _FIELDS[command.type]


def request_id_of(command: BaseCommand) -> int | None:
    """Returns the id of the request that a command answers; None for those that answer none."""
    body: Any = getattr(command, _FIELDS[command.type])
    return int(body.request_id) if "request_id" in body.DESCRIPTOR.fields_by_name else None


def refusal_of(command: BaseCommand, subject: str) -> Refused | None:
    """Returns the error that an answer carries; None for a success. `subject` names what was asked for."""
    field = _FIELDS[command.type]
    body: Any = getattr(command, field)
    if field == "error":
        return refusal(body.error, body.message, subject)
    if field == "lookupTopicResponse":
        failed = body.response == CommandLookupTopicResponse.Failed
    elif field == "partitionMetadataResponse":
        failed = body.response == CommandPartitionedTopicMetadataResponse.Failed
    elif field in _WITH_ERROR:
        failed = body.HasField("error")
    elif field in _WITH_ERROR_CODE:
        if body.HasField("error_code"):
            return refusal(body.error_code, body.error_message, subject)
        return None
    else:
        return None
    return refusal(body.error, body.message, subject) if failed else None

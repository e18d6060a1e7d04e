"""Answers of a broker to requests: whether one refuses, and with which error."""

from __future__ import annotations

from typing import Any, Final

from magnetar.client.errors import Refused, refusal
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)

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


def refusal_of(command: BaseCommand, subject: str) -> Refused | None:
    """Returns the error that an answer carries; None for a success. `subject` names what was asked for."""
    field = command_field(command)
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

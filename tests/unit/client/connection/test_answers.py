"""Answers of brokers: to which request they belong, and whether they refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.client.connection.answers import refusal_of
from magnetar.client.errors import IncompatibleSchema, NotAllowed, NotAuthorized, Refused, TransactionConflict
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.commands import request_id_of
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError

REFUSALS = [
    ("error", {"error": ServerError.AuthorizationError, "message": "no"}, NotAuthorized),
    ("lookupTopicResponse", {"response": 2, "error": ServerError.AuthorizationError}, NotAuthorized),
    ("partitionMetadataResponse", {"response": 1, "error": ServerError.AuthorizationError}, NotAuthorized),
    ("ackResponse", {"consumer_id": 1, "error": ServerError.TransactionConflict}, TransactionConflict),
    ("endTxnResponse", {"error": ServerError.InvalidTxnStatus, "message": "ended"}, Refused),
    ("newTxnResponse", {"error": ServerError.NotAllowedError}, NotAllowed),
    ("getOrCreateSchemaResponse", {"error_code": ServerError.IncompatibleSchema}, IncompatibleSchema),
    ("getSchemaResponse", {"error_code": ServerError.AuthorizationError}, NotAuthorized),
]
SUCCESSES: list[tuple[str, dict[str, Any]]] = [
    ("success", {}),
    ("producer_success", {"producer_name": "p"}),
    ("lookupTopicResponse", {"response": 0}),
    ("lookupTopicResponse", {"response": 1}),
    ("partitionMetadataResponse", {"response": 0}),
    ("ackResponse", {"consumer_id": 1}),
    ("endTxnResponse", {}),
    ("getSchemaResponse", {}),
    ("getOrCreateSchemaResponse", {}),
    ("getLastMessageIdResponse", {"last_message_id": {"ledgerId": 1, "entryId": 1}}),
]
NUMBERS: dict[str, Any] = {field.name: field.number for field in BaseCommand.DESCRIPTOR.fields}


def answer(field: str, values: dict[str, Any]) -> BaseCommand:
    command = BaseCommand(type=NUMBERS[field])
    body: Any = getattr(command, field)
    body.MergeFrom(type(body)(request_id=7, **values))
    return command


@pytest.mark.parametrize(("field", "values", "kind"), REFUSALS)
def test_a_refusal_is_an_error_of_its_class(field: str, values: dict[str, Any], kind: type[Refused]) -> None:
    command = answer(field, values)
    assert (command_field(command), request_id_of(command)) == (field, 7)
    refused = refusal_of(command, "subject")
    assert type(refused) is kind
    assert str(refused).startswith("subject: ")


@pytest.mark.parametrize(("field", "values"), SUCCESSES)
def test_a_success_is_none(field: str, values: dict[str, Any]) -> None:
    command = answer(field, values)
    assert request_id_of(command) == 7
    assert refusal_of(command, "") is None


@pytest.mark.parametrize("field", ["ping", "pong", "connected", "send_receipt"])
def test_what_answers_nothing_has_no_request(field: str) -> None:
    assert request_id_of(BaseCommand(type=NUMBERS[field])) is None

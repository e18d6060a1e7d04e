"""Errors say what is wrong, with what, and what to do next."""

from __future__ import annotations

import pytest
from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    ConsumerBusy,
    MemoryLimitReached,
    NoCredentials,
    OperationTimeout,
    Overloaded,
    OwnerUnreachable,
    QueueFull,
    Refused,
    SendTimeout,
    Undecryptable,
    Unreadable,
    refusal,
)
from magnetar.common.wire.pulsar_pb2 import ServerError

TOPIC = "persistent://public/default/t"


def test_a_refusal_says_what_to_do_next() -> None:
    error = refusal(ServerError.ConsumerBusy, "Exclusive consumer is already connected", TOPIC)
    assert type(error) is ConsumerBusy
    assert str(error).startswith(f"{TOPIC}: Exclusive consumer is already connected (ConsumerBusy); ")
    assert "another subscription name" in str(error)
    assert (error.code, error.reason) == (
        ServerError.ConsumerBusy,
        "Exclusive consumer is already connected",
    )
    assert not error.may_pass
    missing = refusal(ServerError.TopicNotFound, "namespace a/b does not exist; create it first", TOPIC)
    assert "topics create" not in str(missing)


def test_what_may_pass() -> None:
    busy = refusal(ServerError.ServiceNotReady, "")
    assert (type(busy), busy.may_pass, str(busy)) == (Overloaded, True, "ServiceNotReady (ServiceNotReady)")
    assert refusal(ServerError.PersistenceError, "").may_pass


@pytest.mark.parametrize("code", [*ServerError.values(), 99_999])
def test_every_code_has_an_error(code: ServerError.ValueType) -> None:
    error = refusal(code, "", "subject")
    assert isinstance(error, Refused)
    assert str(error).startswith("subject: ")


def test_the_tree() -> None:
    for kind, above in (
        (OwnerUnreachable, ConnectionLost),
        (NoCredentials, ConnectionLost),
        (SendTimeout, OperationTimeout),
        (MemoryLimitReached, QueueFull),
        (Undecryptable, Unreadable),
        (Refused, ClientError),
    ):
        assert issubclass(kind, above)
        assert issubclass(above, ClientError)


@pytest.mark.parametrize(
    "code",
    [ServerError.ProducerBlockedQuotaExceededError, ServerError.ProducerBlockedQuotaExceededException],
)
def test_a_refused_producer_is_not_told_that_it_is_surely_the_backlog(code: ServerError.ValueType) -> None:
    """Too few bookies are refused with the same code."""
    assert "if the backlog quota is reached" in str(refusal(code, "a ledger needs 3 bookies and 1 are up"))

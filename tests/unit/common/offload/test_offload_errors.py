"""Errors of the offload service travel by name and come out as what they were."""

from __future__ import annotations

import grpc
import pytest
from magnetar.common import errors
from magnetar.common.offload import offload_errors, offload_refusals
from magnetar.common.offload.offload_errors import from_wire, may_pass, to_wire
from magnetar.common.rpc.refusals import BadCall, Stopping

TRAVELING = sorted(offload_errors.WIRE.statuses, key=lambda kind: kind.__name__)


def refusals(root: type[errors.MagnetarError]) -> list[type[errors.MagnetarError]]:
    return [root, *(each for child in root.__subclasses__() for each in refusals(child))]


@pytest.mark.parametrize("kind", TRAVELING, ids=lambda kind: kind.__name__)
def test_an_error_comes_out_as_what_it_was(kind: type[errors.MagnetarError]) -> None:
    status, name = to_wire(kind("the reason"))
    found = from_wire(status, name, "the reason", "Begin of b:1")
    assert type(found) is kind
    assert "the reason" in str(found)
    assert "Begin of b:1" in str(found)


def test_every_refusal_has_a_name_on_the_wire() -> None:
    for kind in refusals(offload_refusals.OffloadRefused):
        assert kind in offload_errors.WIRE.statuses
        assert not may_pass(kind("x"))


def test_an_error_without_a_name_of_its_own_travels_as_its_parent_and_a_bug_as_a_failure() -> None:
    assert to_wire(errors.LogFull("full"))[1] == "StorageError"
    assert to_wire(KeyError("bug")) == (grpc.StatusCode.INTERNAL, "OffloadFailed")
    assert to_wire(BadCall("garbage")) == (grpc.StatusCode.INVALID_ARGUMENT, "")


def test_transport_errors_become_errors_with_a_remedy() -> None:
    away = from_wire(grpc.StatusCode.UNAVAILABLE, "", "connection refused", "Wanted of h:1")
    assert isinstance(away, offload_errors.OffloadUnreachable)
    assert may_pass(away)
    late = from_wire(grpc.StatusCode.DEADLINE_EXCEEDED, "", "", "Wanted of h:1")
    assert isinstance(late, offload_errors.OffloadTimedOut)
    assert isinstance(from_wire(grpc.StatusCode.UNIMPLEMENTED, "", "", "x"), errors.NotSupportedYet)
    assert isinstance(from_wire(grpc.StatusCode.DATA_LOSS, "", "", "x"), offload_errors.OffloadFailed)
    assert isinstance(
        from_wire(grpc.StatusCode.NOT_FOUND, "OfALaterRelease", "", "x"), offload_errors.OffloadFailed
    )
    status, name = to_wire(Stopping("going"))
    assert may_pass(from_wire(status, name, "going", "x"))


PASSING = (errors.MetadataError, errors.ServiceNotReady, errors.NotEnoughBookies, errors.TooManyRequests)
LASTING = (errors.TopicNotFound, errors.EntryUnreadable, errors.NotAllowed, errors.NoSuchLedger)


@pytest.mark.parametrize("kind", [*PASSING, *LASTING], ids=lambda kind: kind.__name__)
def test_only_transient_errors_are_retried(kind: type[errors.MagnetarError]) -> None:
    assert may_pass(kind("x")) == (kind in PASSING)

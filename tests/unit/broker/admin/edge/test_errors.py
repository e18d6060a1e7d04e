"""The status of every typed error."""

from __future__ import annotations

import pytest
from magnetar.broker.admin.edge.errors import HTTP_STATUS, status_of
from magnetar.common import errors


def subclasses(root: type[errors.MagnetarError]) -> list[type[errors.MagnetarError]]:
    return [root, *(each for child in root.__subclasses__() for each in subclasses(child))]


def bare(kind: type[errors.MagnetarError]) -> errors.MagnetarError:
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", subclasses(errors.MagnetarError))
def test_retryable_errors_are_503_or_409_and_no_other_is_503(
    kind: type[errors.MagnetarError],
) -> None:
    status = status_of(bare(kind))
    assert status in range(400, 600)
    if kind.retriable:
        assert status in (409, 503)
    elif not issubclass(kind, errors.MetadataError):
        assert status != 503


def test_an_error_without_a_status_of_its_own_has_that_of_its_parent() -> None:
    assert errors.NamespaceNotFound not in HTTP_STATUS
    assert status_of(errors.NamespaceNotFound("gone")) == 404
    assert status_of(errors.InvalidName("bad")) == 412


def test_request_for_a_closing_topic_is_told_to_retry() -> None:
    assert status_of(errors.LedgerClosed("t is closing")) == 503


def test_concurrent_creation_or_deletion_is_a_conflict() -> None:
    assert status_of(errors.BeingChanged("t is being changed")) == 409
    assert status_of(errors.BeingDeleted("t is being deleted")) == 409

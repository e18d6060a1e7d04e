from __future__ import annotations

from magnetar.common import errors
from magnetar.common.wire.error_codes import _CODES, code_of
from magnetar.common.wire.pulsar_pb2 import ServerError

NO_CLIENT_MEETS = (
    "magnetar.standalone",
    "magnetar.cli",
    "magnetar.bookie",
    "magnetar.client",
    "magnetar.console",
    "magnetar.spark",
    "magnetar.common.metadata.backup",  # of the command line alone
    "magnetar.common.rpc",  # these end at the edge of gRPC
)
"""Where errors are defined of which none reaches a client."""


def descendants(kind: type[errors.MagnetarError]) -> list[type[errors.MagnetarError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in descendants(child))]


def test_every_error_class_has_a_code_of_its_own_or_of_an_ancestor_below_the_root() -> None:
    for kind in descendants(errors.MagnetarError):
        if kind in (errors.MagnetarError, errors.BrokerError, errors.ConfigError):
            continue
        if kind.__module__.startswith(NO_CLIENT_MEETS):
            continue
        nearest = next(each for each in kind.__mro__ if each in _CODES)
        if issubclass(kind, errors.BrokerError) and kind.__module__ == errors.__name__:
            assert nearest is not errors.BrokerError, f"{kind.__name__} has no code"
        assert nearest is not errors.MagnetarError, f"{kind.__name__} has no code"


def test_the_nearest_ancestor_wins_and_a_bug_reads_unknown() -> None:
    assert code_of(errors.NamespaceNotFound("x")) == ServerError.TopicNotFound
    assert code_of(errors.NotSupportedYet("x")) == ServerError.NotAllowedError
    assert code_of(errors.LogFull("x")) == ServerError.PersistenceError
    assert code_of(KeyError("x")) == ServerError.UnknownError


def test_closing_topic_error_asks_for_a_new_lookup() -> None:
    assert code_of(errors.LedgerClosed("t is closing")) == ServerError.ServiceNotReady
    assert code_of(errors.OwnershipLost("t has another owner")) == ServerError.ServiceNotReady

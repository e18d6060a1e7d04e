"""Transactions in the messages of the control plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.broker.transactions.participants import EndOutcome, EndResult, TransactionEnd
from magnetar.broker.transactions.status import TransactionStatus, TransactionStatuses, TxnState
from magnetar.common.control import control_pb2
from magnetar.common.control.control_pb2 import (
    TransactionEndResult,
    TransactionId,
    TransactionState,
    TransactionStatusRequest,
    TransactionStatusResponse,
)
from magnetar.common.errors import NotAllowed, ServiceNotReady
from magnetar.common.naming.txn_id import Action, TxnId

_ACTIONS: Final[Mapping[Action, control_pb2.TransactionAction.ValueType]] = {
    Action.COMMIT: control_pb2.COMMIT,
    Action.ABORT: control_pb2.ABORT,
}
_READ_ACTIONS: Final = {code: action for action, code in _ACTIONS.items()}

_OUTCOMES: Final[Mapping[EndOutcome, TransactionEndResult.Outcome.ValueType]] = {
    EndOutcome.DONE: TransactionEndResult.DONE,
    EndOutcome.RETRY: TransactionEndResult.RETRY,
    EndOutcome.NOT_MINE: TransactionEndResult.NOT_MINE,
    EndOutcome.GONE: TransactionEndResult.GONE,
    EndOutcome.REFUSED: TransactionEndResult.REFUSED,
}
_READ_OUTCOMES: Final = {code: outcome for outcome, code in _OUTCOMES.items()}

_STATES: Final[Mapping[TxnState, TransactionState.Status.ValueType]] = {
    TxnState.OPEN: TransactionState.OPEN,
    TxnState.COMMITTING: TransactionState.COMMITTING,
    TxnState.ABORTING: TransactionState.ABORTING,
    TxnState.COMMITTED: TransactionState.COMMITTED,
    TxnState.ABORTED: TransactionState.ABORTED,
    TxnState.UNKNOWN: TransactionState.UNKNOWN,
}
_READ_STATES: Final = {code: state for state, code in _STATES.items()}


def write_end(end: TransactionEnd) -> control_pb2.TransactionEnd:
    return control_pb2.TransactionEnd(
        txn_most=end.txn.most,
        txn_least=end.txn.least,
        topic=end.topic,
        action=_ACTIONS[end.action],
        low_watermark=end.low_watermark,
    )


def read_end(message: control_pb2.TransactionEnd) -> TransactionEnd:
    """Raises NotAllowed for an action of a later release."""
    action = _READ_ACTIONS.get(message.action)
    if action is None:
        raise NotAllowed(f"invalid action {message.action} of a transaction: 1 commits, 2 aborts")
    txn = TxnId(message.txn_most, message.txn_least)
    return TransactionEnd(txn, message.topic, action, message.low_watermark)


def write_result(result: EndResult) -> TransactionEndResult:
    return TransactionEndResult(outcome=_OUTCOMES[result.outcome], owner=result.owner, reason=result.reason)


def read_result(message: TransactionEndResult) -> EndResult:
    """Reads a result; an outcome of a later release is one to be retried."""
    outcome = _READ_OUTCOMES.get(message.outcome, EndOutcome.RETRY)
    return EndResult(outcome, message.owner, message.reason)


def write_ids(transactions: Sequence[TxnId]) -> TransactionStatusRequest:
    return TransactionStatusRequest(
        transactions=[TransactionId(most=each.most, least=each.least) for each in transactions]
    )


def read_ids(message: TransactionStatusRequest) -> list[TxnId]:
    return [TxnId(each.most, each.least) for each in message.transactions]


def write_statuses(transactions: Sequence[TxnId], statuses: TransactionStatuses) -> TransactionStatusResponse:
    found = (statuses.of[each] for each in transactions)
    return TransactionStatusResponse(
        states=[TransactionState(status=_STATES[each.state], until_ms=each.until_ms) for each in found],
        low_watermark=statuses.low_watermark,
    )


def read_statuses(transactions: Sequence[TxnId], message: TransactionStatusResponse) -> TransactionStatuses:
    """Raises ServiceNotReady for an answer that does not fit the request, or that a later release gives."""
    states = [_READ_STATES.get(each.status) for each in message.states]
    if len(states) != len(transactions) or None in states:
        raise ServiceNotReady(f"invalid answer about {len(transactions)} transactions: {states}")
    of = {
        txn: TransactionStatus(state, each.until_ms)
        for txn, state, each in zip(transactions, states, message.states, strict=True)
        if state is not None
    }
    return TransactionStatuses(of, message.low_watermark)

"""Routes of single offload thresholds of a namespace, which are members of its offload policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.policies.offload_policies import limit
from magnetar.broker.admin.policies.policy_json import BadPolicy
from magnetar.common.metadata.values import Namespace
from magnetar.common.security.authorization.operations import Operation


async def _get(member: str, unset: int | None, call: Call) -> web.Response:
    offload = (await call.broker.policy_writer.namespace(call.namespace)).policies.offload
    if offload.HasField(member):  # type: ignore[arg-type]
        return answer(getattr(offload, member))
    return nothing() if unset is None else answer(unset)


async def _set(member: str, name: str, call: Call) -> web.Response:
    try:
        number = limit(name, await call.json())
    except BadPolicy as error:
        raise Refused(error.status, error.reason) from error
    await _change(call, lambda namespace: setattr(namespace.policies.offload, member, number))
    return nothing() if name == _SECONDS else done()


async def _clear_lag(call: Call) -> web.Response:
    def edit(namespace: Namespace) -> None:
        if namespace.policies.HasField("offload"):
            namespace.policies.offload.ClearField("deletion_lag_ms")

    await _change(call, edit)
    return done()


async def _change(call: Call, edit: Callable[[Namespace], Any]) -> None:
    await call.broker.policy_writer.change_namespace(call.namespace, edit)


_SECONDS: Final = "offloadThresholdInSeconds"
_LAG: Final = "offloadDeletionLagMs"
_CHANGED: Final = {409: "Concurrent modification", 412: "invalid value; invalid name"}


def _route(method: str, name: str, handler: Any, summary: str, **more: Any) -> Route:
    errors = NAMESPACE_ERRORS if method == "GET" else {**NAMESPACE_ERRORS, **_CHANGED}
    path = f"{NAMESPACE_PATH}/{name}"
    return Route(
        object="namespaces",
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        errors=errors,
        **more,
        operation=Operation.POLICY,
    )


ROUTES: Final = [
    *(
        route
        for name, member, unset, what in (
            (
                "offloadThreshold",
                "threshold_bytes",
                -1,
                "the size of a topic, in bytes, above which its oldest ledgers are offloaded",
            ),
            (
                _SECONDS,
                "threshold_s",
                -1,
                "the age of a closed ledger, in seconds, above which it is offloaded",
            ),
            (
                _LAG,
                "deletion_lag_ms",
                None,
                "how long bookies keep a ledger after it was offloaded, in milliseconds; -1 forever",
            ),
        )
        for route in (
            _route("GET", name, partial(_get, member, unset), f"Get {what}.", answer="long"),
            _route(
                "PUT",
                name,
                partial(_set, member, name),
                f"Set {what}.",
                body="long",
                status=200 if name == _SECONDS else 204,
            ),
        )
    ),
    _route(
        "DELETE",
        _LAG,
        _clear_lag,
        "Reset the offload deletion lag of a namespace to the broker's setting.",
        status=204,
    ),
]

"""Which services may call which methods of a gRPC service, checked once for each call.

Each protocol room has its own table (`CALLERS` beside its methods). A table lists every method: a method
without a line may be called by no service.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from inspect import isasyncgenfunction
from typing import Any, Final

import grpc
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.rpc.refusals import CallRefused
from magnetar.common.security.audit import audit_process
from magnetar.common.security.services.service_identity import Service, ServiceIdentity, peer_identities
from prometheus_client import Counter

Refuse = Callable[[Any, str, Exception], Awaitable[None]]
"""Ends a call because of an error: the call's context, the method's name, the error. Always raises."""

CallerTable = Mapping[str, frozenset[Service]]
"""The services that may call a method, by the method's name."""

REFUSED_CALLERS: Final = Counter(
    "magnetar_service_refused_callers",
    "Calls refused because the caller's certificate does not permit the method, by method and caller.",
    ["method", "caller"],
    registry=REGISTRY,
)

UNKNOWN_CALLER: Final = "none"
"""The metric label of a caller whose certificate is not one of a service of this cluster."""


class CallerNotPermitted(CallRefused):
    """The caller's certificate does not permit this method."""

    status = grpc.StatusCode.PERMISSION_DENIED


@dataclass(frozen=True, slots=True)
class CallerCheck:
    """Checks callers of one gRPC port, which requires client certificates."""

    cluster: str
    table: CallerTable
    authorized: frozenset[str] = frozenset()
    """Services or URIs that may call at all; empty admits those of the table."""

    def caller(self, method: str, context: Any) -> ServiceIdentity:
        """Return the identity that permits the call. Raises CallerNotPermitted."""
        known = [each for each in peer_identities(context.auth_context()) if each.cluster == self.cluster]
        permitted = self.table.get(method, frozenset())
        for identity in known:
            if identity.service in permitted and self._admits(identity):
                return identity
        shown = known[0].service.value if known else UNKNOWN_CALLER
        REFUSED_CALLERS.labels(method if method in self.table else "unknown", shown).inc()
        uri = known[0].uri if known else None
        audit_process(
            "service refused", service=uri, address=context.peer(), method=method, outcome="refused"
        )
        if known:
            allowed = ", ".join(sorted(each.value for each in permitted)) or "no service"
            raise CallerNotPermitted(
                f"a {shown} may not call {method}; permitted: {allowed}. Check the certificate of the caller"
            )
        raise CallerNotPermitted(
            f"the caller's certificate has no URI spiffe://{self.cluster}/<service>: a certificate of a "
            "client or of another cluster is not an identity of a service"
        )

    def _admits(self, identity: ServiceIdentity) -> bool:
        return not self.authorized or not self.authorized.isdisjoint((identity.service.value, identity.uri))

    def guard(self, method: str, handler: Any, refuse: Refuse) -> Any:
        """Return `handler`, a gRPC method handler, behind this check. It is a coroutine function, or an
        asynchronous generator of the call's responses.
        """

        async def check(context: Any) -> None:
            try:
                self.caller(method, context)
            except CallerNotPermitted as error:
                await refuse(context, method, error)
                raise AssertionError("abort raises") from error

        make, name = _SHAPES[handler.request_streaming, handler.response_streaming]
        inner = getattr(handler, name)

        async def call(request: Any, context: Any) -> Any:
            await check(context)
            return await inner(request, context)

        async def generate(request: Any, context: Any) -> AsyncGenerator[Any, None]:
            await check(context)
            async with aclosing(inner(request, context)) as responses:
                async for response in responses:
                    yield response

        checked = generate if isasyncgenfunction(inner) else call
        return make(checked, handler.request_deserializer, handler.response_serializer)


_SHAPES: Final[Mapping[tuple[bool, bool], tuple[Callable[..., Any], str]]] = {
    (False, False): (grpc.unary_unary_rpc_method_handler, "unary_unary"),
    (False, True): (grpc.unary_stream_rpc_method_handler, "unary_stream"),
    (True, False): (grpc.stream_unary_rpc_method_handler, "stream_unary"),
    (True, True): (grpc.stream_stream_rpc_method_handler, "stream_stream"),
}

"""A gRPC server with its services, the standard health service and reflection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection
from magnetar.common.rpc.callers import Refuse
from magnetar.common.rpc.options import ChannelOptions
from magnetar.common.rpc.refusals import UnknownMethod

Guard: TypeAlias = Callable[[str, Any, Refuse], Any]
"""Wraps a handler with a check of its callers: the method's name, its handler, how to refuse."""


class GrpcServer:
    """Listens from `start` to `close`. Methods receive and return bytes; unknown ones go to `refuse`."""

    def __init__(
        self,
        service: str,
        methods: Mapping[str, Any],
        refuse: Refuse,
        options: ChannelOptions,
        credentials: grpc.ServerCredentials | None = None,
        *,
        also: Mapping[str, Mapping[str, Any]] | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`also`: the methods of other services on the same port, by the services' names.

        `guard` wraps each method's handler with the check of its callers. With credentials there is no
        reflection, and health answers only callers that complete the handshake.
        """
        self._credentials = credentials
        self._health = HealthServicer()
        self._server = server = grpc.aio.server(options=options)
        services = {service: methods, **(also or {})}
        for name, its_methods in services.items():
            handlers = {
                method: handler if guard is None else guard(method, handler, refuse)
                for method, handler in its_methods.items()
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (
            *services,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            reflection.SERVICE_NAME,
        )
        if credentials is None:
            reflection.enable_server_reflection(names, server)
        server.add_generic_rpc_handlers((_UnknownMethods(refuse),))

    async def start(self, host: str, port: int, key: str) -> int:
        """Listens and returns the port. Raises OSError, naming the setting `key`, if the port cannot be
        bound.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address} ({key}): {error}") from error
        await self._server.start()
        return int(bound)

    async def set_health(self, name: str, *, serving: bool) -> None:
        """Sets the health status of `name`; the empty name is the whole process."""
        status = health_pb2.HealthCheckResponse
        await self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    async def shut_down_health(self) -> None:
        """Sets every health status to not serving, permanently."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls and ends those still running after `grace_s` seconds; idempotent."""
        await self._server.stop(grace_s)


class _UnknownMethods(grpc.GenericRpcHandler):
    """The last handler: refuses, counts and logs unknown methods."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = handler_call_details.method

        async def handle(_requests: Any, context: Any) -> None:
            await self._refuse(context, name, UnknownMethod(f"unknown method {name}"))

        return grpc.stream_stream_rpc_method_handler(handle)

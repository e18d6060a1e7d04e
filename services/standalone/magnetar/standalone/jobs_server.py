"""The gRPC server of a standalone, with only the offload service. Imported at the first connection."""

from __future__ import annotations

from typing import Final

from magnetar.broker.broker import Broker
from magnetar.broker.offload.topic_owners import SoleOwner
from magnetar.common.offload.methods import MESSAGE_BYTES_MAX, SERVICE
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer
from magnetar.standalone.offload_service import offload_service

STREAMS_MAX: Final = 64
"""Maximum concurrent calls of one connection; further calls wait in the client."""

CLOSE_GRACE_S: Final = 1.0
"""Grace period of running calls when the process stops, in seconds."""


class JobsServer:
    """Serves the offload service of a broker from `start` to `close`."""

    def __init__(self, broker: Broker) -> None:
        self._service = service = offload_service(broker, SoleOwner())
        options = [*server_options(MESSAGE_BYTES_MAX), ("grpc.max_concurrent_streams", STREAMS_MAX)]
        self._server = GrpcServer(SERVICE, service.methods(), service.refuse, options)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError when binding fails."""
        bound = await self._server.start(host, port, "magnetarControlPort")
        self._service.serving = True
        for name in ("", SERVICE):
            await self._server.set_health(name, serving=True)
        return bound

    async def close(self) -> None:
        """Refuse new calls and end running ones. Idempotent."""
        self._service.serving = False
        await self._server.shut_down_health()
        await self._server.stop(CLOSE_GRACE_S)

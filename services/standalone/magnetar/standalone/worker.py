"""One of the brokers that `magnetar broker --workers N` runs, in its own process."""

from __future__ import annotations

import asyncio
import os

from magnetar.common.obs.logs import get_logger
from magnetar.standalone.cluster_broker import ClusterBroker
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.process import ask_to_stop
from magnetar.standalone.worker_config import worker_config

_log = get_logger("magnetar.workers")


class Worker(ClusterBroker):
    """A broker that stops when its parent process ends."""

    def __init__(self, config: ClusterBrokerConfig, worker: int, descriptor: int = 0) -> None:
        """`descriptor` is a pipe that ends with the parent process."""
        super().__init__(worker_config(config, worker))
        self._descriptor = descriptor

    async def start(self) -> None:
        """See `ClusterBroker.start`."""
        asyncio.get_running_loop().add_reader(self._descriptor, self._input_came)
        await super().start()

    async def close(self) -> None:
        """See `ClusterBroker.close`."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        await super().close()

    def _input_came(self) -> None:
        try:
            ended = not os.read(self._descriptor, 4096)
        except OSError:
            ended = True
        if ended:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            _log.warning("the parent process of this worker ended: stopping")
            ask_to_stop()

"""A worker goes when the process that started it does."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest
from magnetar.common.errors import ConfigError
from magnetar.standalone import worker as module
from magnetar.standalone.cluster_config import ClusterBrokerConfig, MetadataConfig
from magnetar.standalone.worker import Worker


def test_a_worker_asks_itself_to_stop_when_its_input_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "ask_to_stop", lambda: asked.append(True))

    async def scenario() -> None:
        reading, writing = os.pipe()
        try:
            config = ClusterBrokerConfig(metadata=MetadataConfig(url="etcd:127.0.0.1:1"))
            worker = Worker(replace(config, broker=replace(config.broker, cluster_name="c")), 0, reading)
            asyncio.get_running_loop().add_reader(reading, worker._input_came)
            os.write(writing, b"not the end")
            await asyncio.sleep(0.01)
            assert not asked
            os.close(writing)
            async with asyncio.timeout(10):
                while not asked:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            os.close(reading)

    asyncio.run(scenario())
    assert asked == [True]


def test_a_worker_that_cannot_start_leaves_its_input_alone() -> None:
    async def scenario() -> None:
        reading, writing = os.pipe()
        try:
            with pytest.raises(ConfigError, match="clusterName is required"):
                await Worker(ClusterBrokerConfig(), 0, reading).start()
            assert not asyncio.get_running_loop().remove_reader(reading)
        finally:
            os.close(reading)
            os.close(writing)

    asyncio.run(scenario())

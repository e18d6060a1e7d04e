"""The instance id is made once, whoever starts first."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.runtime.clock import SystemClock


def test_all_who_start_at_once_agree_on_one_instance_id(tmp_path: Path) -> None:
    async def run() -> None:
        metadata = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        keys, clock = Keys("one"), SystemClock()
        made = await asyncio.gather(
            *(ensure_instance_id(metadata, keys, clock, random.Random(seed)) for seed in range(5))
        )
        assert len(set(made)) == 1
        assert len(made[0]) == 16
        again = await ensure_instance_id(metadata, keys, clock, random.Random(9))
        other = await ensure_instance_id(metadata, Keys("other"), clock, random.Random(9))
        await metadata.close()
        assert again == made[0] != other

    asyncio.run(run())

"""The instance id is made once, whoever starts first."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.instance import ensure_instance_id, require_instance
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.values import Restoration, encode
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


def test_a_process_goes_on_only_over_the_metadata_that_it_began_with(tmp_path: Path) -> None:
    async def run() -> None:
        metadata = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        keys, clock = Keys("one"), SystemClock()
        began = await ensure_instance_id(metadata, keys, clock, random.Random(1))
        await require_instance(metadata, keys, began)
        await metadata.delete(keys.instance_id)
        with pytest.raises(MetadataError, match=r"is empty.*docs/backup\.md"):
            await require_instance(metadata, keys, began)
        other = await ensure_instance_id(metadata, keys, clock, random.Random(2))
        with pytest.raises(MetadataError, match=f"is of instance {other.hex()}"):
            await require_instance(metadata, keys, began)
        await metadata.put(keys.restoration, encode(Restoration(state=Restoration.WRITING)))
        with pytest.raises(MetadataError, match="being restored"):
            await require_instance(metadata, keys, began)
        await metadata.close()

    asyncio.run(run())

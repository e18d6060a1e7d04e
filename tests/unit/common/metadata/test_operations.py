"""What metadata's answers take, under Pulsar's names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata import operations
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.obs.metrics import REGISTRY

from tests.unit.common.metadata.in_a_file import with_store


def count(kind: str, status: str) -> float:
    labels = {"name": "metadata-store", "type": kind, "status": status}
    return REGISTRY.get_sample_value("pulsar_metadata_store_ops_latency_ms_count", labels) or 0.0


def put_bytes() -> float:
    labels = {"name": "metadata-store"}
    return REGISTRY.get_sample_value("pulsar_metadata_store_put_bytes_total", labels) or 0.0


def unknown() -> float:
    return REGISTRY.get_sample_value("magnetar_metadata_unknown_outcomes_total") or 0.0


def test_operations_are_timed_by_kind_and_by_what_became_of_them() -> None:
    async def main() -> None:
        before = {
            (kind, status): count(kind, status) for kind in ("get", "put") for status in ("success", "fail")
        }
        unknown_before = unknown()
        with operations.timed("get"):
            await asyncio.sleep(0)
        for error in (MetadataError("away"), UnknownOutcome("no answer")):
            with pytest.raises(MetadataError), operations.timed("put"):
                raise error
        assert count("get", "success") == before["get", "success"] + 1
        assert count("put", "fail") == before["put", "fail"] + 2
        assert count("put", "success") == before["put", "success"]
        assert unknown() == unknown_before + 1

    asyncio.run(main())


def test_a_standalones_metadata_is_timed_too_and_a_guard_that_does_not_hold_is_an_answer(
    tmp_path: Path,
) -> None:
    async def scenario(store: SqliteMetadataStore) -> None:
        before = count("put", "success"), count("put", "fail"), count("get", "success"), put_bytes()
        await store.put("/a", b"12345")
        await store.get("/a")
        with pytest.raises(VersionMismatch):
            await store.put("/a", b"1", expected_version=999)
        after = count("put", "success"), count("put", "fail"), count("get", "success"), put_bytes()
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 0, 1, 6]

    with_store(tmp_path / "metadata.sqlite", scenario)

"""Which store a URL opens, and what that imports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.open_store import etcd_endpoints, open_metadata_store
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore


def test_a_sqlite_url_opens_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_metadata_store(f"sqlite:{tmp_path / 'metadata.db'}")
        assert isinstance(store, SqliteMetadataStore)
        await store.close()

    asyncio.run(main())
    assert (tmp_path / "metadata.db").exists()


def test_an_etcd_url_names_members_by_host_and_port() -> None:
    assert etcd_endpoints("etcd:etcd-0.etcd:2379, 10.0.0.1:1,[::1]:2379") == [
        "etcd-0.etcd:2379",
        "10.0.0.1:1",
        "[::1]:2379",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "etcd:",
        "etcd:host",
        "etcd:host:",
        "etcd:host:x",
        "etcd:a:1,",
        "etcd:a:0",
        "etcd:a:65536",
        "etcd:http://a:1",
        "sqlite:",
        "zk:localhost:2181",
        "localhost:2379",
        "",
    ],
)
def test_another_url_is_refused_with_the_forms_that_are_taken(url: str) -> None:
    with pytest.raises(ConfigError, match="write etcd:host"):
        asyncio.run(open_metadata_store(url))


def test_opening_a_file_imports_no_grpc(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from magnetar.common.metadata.open_store import open_metadata_store
async def main():
    await (await open_metadata_store("sqlite:{tmp_path}/metadata.db")).close()
asyncio.run(main())
sys.exit("grpc" in sys.modules or "etcd3aio" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0

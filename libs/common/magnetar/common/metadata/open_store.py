"""Opens the metadata store of a URL: `etcd:host:port,host:port` or `sqlite:path`."""

from __future__ import annotations

from magnetar.common.errors import ConfigError
from magnetar.common.metadata.store import MetadataStore


def etcd_endpoints(url: str) -> list[str]:
    """Returns the members of an `etcd:` URL. Raises ConfigError."""
    endpoints = [part.strip() for part in url.removeprefix("etcd:").split(",")]
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if not host or "/" in endpoint or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(
                f"metadata store {url!r}: {endpoint!r} is not host:port; write etcd:host1:2379,host2:2379"
            )
    return endpoints


async def open_metadata_store(url: str) -> MetadataStore:
    """Opens the store; the caller closes it.

    Raises ConfigError for another URL, MetadataError when the store cannot be reached or opened. Each store's
    module is imported on demand, because gRPC is slow to import.
    """
    if url.startswith("etcd:"):
        endpoints = etcd_endpoints(url)
        from magnetar.common.metadata.etcd_store import EtcdMetadataStore

        return await EtcdMetadataStore.open(endpoints)
    if url.startswith("sqlite:") and url != "sqlite:":
        from magnetar.common.metadata.sqlite_store import SqliteMetadataStore

        return await SqliteMetadataStore.open(url.removeprefix("sqlite:"))
    raise ConfigError(f"metadata store {url!r}: write etcd:host:port,host:port or sqlite:path")

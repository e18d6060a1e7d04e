"""Opens the metadata store of a URL: `etcd:host:port,host:port` or `sqlite:path`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.common.errors import ConfigError
from magnetar.common.metadata.store import MetadataStore

if TYPE_CHECKING:  # it imports gRPC
    from magnetar.common.metadata.etcd_access import EtcdAccess


def etcd_endpoints(url: str) -> list[str]:
    """The members that an `etcd:` URL names, as host:port. Raises ConfigError."""
    parts = [part.strip() for part in url.removeprefix("etcd:").split(",")]
    if len({part.partition("://")[0] if "://" in part else "" for part in parts}) > 1:
        raise ConfigError(f"metadata store {url!r}: write https:// before every member or before none")
    endpoints = [part.removeprefix("https://") for part in parts]
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if not host or "/" in endpoint or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(
                f"metadata store {url!r}: {endpoint!r} is not host:port; write etcd:host1:2379,host2:2379"
            )
    return endpoints


def etcd_tls(url: str) -> bool:
    """Whether an `etcd:` URL asks for TLS: `etcd:https://host:port,...`."""
    return url.startswith("etcd:") and "https://" in url


async def open_metadata_store(url: str, access: EtcdAccess | None = None) -> MetadataStore:
    """Open it; the caller closes it. `access`: TLS and credentials for etcd.

    Raises ConfigError for another URL, MetadataError when the store cannot be reached or opened. Each store's
    module is imported on demand, because gRPC is slow to import.
    """
    if url.startswith("etcd:"):
        endpoints = etcd_endpoints(url)
        from magnetar.common.metadata.etcd_store import EtcdMetadataStore

        return await EtcdMetadataStore.open(endpoints, access=access)
    if url.startswith("sqlite:") and url != "sqlite:":
        from magnetar.common.metadata.sqlite_store import SqliteMetadataStore

        return await SqliteMetadataStore.open(url.removeprefix("sqlite:"))
    raise ConfigError(f"metadata store {url!r}: write etcd:host:port,host:port or sqlite:path")

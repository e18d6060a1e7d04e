"""Runs a command's work on the metadata store of the target cluster."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from magnetar.cli.admin.target import Target
from magnetar.common.errors import ConfigError, MagnetarError, MetadataError

if TYPE_CHECKING:
    from magnetar.common.metadata.keys import Keys
    from magnetar.common.metadata.store import MetadataStore


class NoMetadata(click.ClickException):
    """The cluster's metadata cannot be reached."""

    exit_code = 3


def with_metadata(target: Target, work: Callable[[MetadataStore, Keys], Awaitable[int]]) -> None:
    """Run `work` and end the process with its exit code; errors become one line."""
    import asyncio

    from magnetar.cli.metadata_credentials import metadata_access
    from magnetar.common.metadata.keys import Keys
    from magnetar.common.metadata.open_store import open_metadata_store

    async def run() -> int:
        metadata = await open_metadata_store(
            target.metadata_url, metadata_access(target.metadata_url, target.metadata_settings)
        )
        try:
            return await work(metadata, Keys(target.cluster))
        finally:
            await metadata.close()

    try:
        code = asyncio.run(run())
    except ConfigError as error:
        raise click.UsageError(f"--metadata: {error}") from error
    except MetadataError as error:
        raise NoMetadata(
            f"{target.metadata_url}: {error}; name the cluster's etcd with --metadata "
            "(a standalone server has no bookies)"
        ) from error
    except MagnetarError as error:
        raise click.ClickException(f"{target.metadata_url}: {error}") from error
    sys.exit(code)

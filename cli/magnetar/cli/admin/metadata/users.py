"""Users of etcd for `magnetar admin metadata users`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from magnetar.cli.metadata_credentials import metadata_access
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.etcd_access import EtcdAccess
from magnetar.common.metadata.etcd_connection import EtcdConnection
from magnetar.common.metadata.etcd_users import ROOT, require_users, rights_of_users
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import etcd_endpoints, etcd_tls

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target


def require(target: Target, administrators: Sequence[str]) -> None:
    """Make the users of `target`'s cluster and turn etcd's access control on; prints what was changed."""
    url = target.metadata_url
    try:
        if not etcd_tls(url):
            raise ConfigError(
                f"{url}: users are names in client certificates; use etcd:https://HOST:PORT,..."
            )
        access = metadata_access(url)
        if access is None or access.certificate is None:
            raise ConfigError(
                "no client certificate: set MAGNETAR_MAGNETAR_METADATA_TLS_CERTIFICATE_FILE_PATH"
            )
        caller = _caller(access)
        if caller not in (ROOT, *administrators):
            raise ConfigError(
                f"{caller!r} is no administrator and would lock itself out; use the certificate of "
                f"{' or '.join((ROOT, *administrators))}, or add --administrator {caller}"
            )
        changes = asyncio.run(_require(url, access, Keys(target.cluster), administrators))
    except ConfigError as error:
        raise click.UsageError(f"--metadata: {error}") from error
    except MagnetarError as error:
        raise click.ClickException(f"{url}: {error}") from error
    for change in changes:
        click.echo(change)
    click.echo(f"access control is on; {len(changes)} changes")


async def _require(url: str, access: EtcdAccess, keys: Keys, administrators: Sequence[str]) -> list[str]:
    connection = EtcdConnection(etcd_endpoints(url), access=access)
    try:
        return await require_users(connection, keys, rights_of_users(keys), administrators)
    finally:
        await connection.close()


def _caller(access: EtcdAccess) -> str:
    """The user that etcd takes the caller for."""
    if access.user:
        return access.user
    assert access.certificate is not None
    return _common_name(access.certificate)


def _common_name(path: Path) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificate {path} cannot be read: {error}") from error
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""

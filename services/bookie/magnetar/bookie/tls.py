"""TLS of the bookie's gRPC port and of its connections to other bookies."""

from __future__ import annotations

from pathlib import Path

import grpc
from magnetar.bookie.config import TlsConfig
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.security.services.credentials import CredentialFiles, ServiceCredentials
from magnetar.ledger.bookie_protocol.grpc_methods import CALLERS


def service_credentials(config: TlsConfig) -> ServiceCredentials | None:
    """Load the configured files; None without TLS. Raises ConfigError for unusable files.

    Bookies reach each other with the same files. Without `tlsTrustStore` a bookie trusts its own certificate,
    and that of others which is the same.
    """
    if not config.enabled:
        return None
    return ServiceCredentials(
        CredentialFiles(
            trust_certs=Path(config.trust_certs or config.certificate),
            certificate=Path(config.certificate),
            key=Path(config.key),
        )
    )


def server_credentials(
    config: TlsConfig, credentials: ServiceCredentials | None
) -> grpc.ServerCredentials | None:
    """Return the credentials of the gRPC port; None without TLS."""
    if credentials is None:
        return None
    return credentials.server(require_client_authentication=config.client_authentication)


def caller_check(config: TlsConfig, cluster: str) -> CallerCheck | None:
    """Return the check of callers by their certificates; None where these are not required."""
    if not (config.enabled and config.client_authentication):
        return None
    return CallerCheck(cluster, CALLERS, frozenset(config.authorized_roles))

"""TLS of the bookie's gRPC port and of its connections to other bookies."""

from __future__ import annotations

from pathlib import Path

import grpc
from magnetar.bookie.config import TlsConfig
from magnetar.ledger.bookie_protocol.grpc_clients import ClientTls, read_pem


def server_credentials(config: TlsConfig) -> grpc.ServerCredentials | None:
    """Loads the configured credentials; None without TLS. Raises ConfigError for unusable files."""
    if not config.enabled:
        return None
    pair = (read_pem(Path(config.key)), read_pem(Path(config.certificate)))
    trusted = read_pem(Path(config.trust_certs)) if config.client_authentication else None
    return grpc.ssl_server_credentials(
        [pair], root_certificates=trusted, require_client_auth=config.client_authentication
    )


def client_tls(config: TlsConfig) -> ClientTls | None:
    """Loads the settings for connections to other bookies, which are configured alike; None without TLS.

    Without `tlsTrustStore`, the bookie's own certificate is the trust anchor.
    """
    if not config.enabled:
        return None
    return ClientTls(
        trust_certs=Path(config.trust_certs or config.certificate),
        certificate=Path(config.certificate),
        key=Path(config.key),
    )

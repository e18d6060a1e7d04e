"""Certificates of a service for its gRPC ports and channels, renewed while the service runs.

A server reads them for each handshake: open connections stay, new ones get the new certificate and trust. The
credentials of a channel are fixed (gRPC has no way to change them), so clients of this module open another
channel when `generation` has changed, and let calls on the earlier one end.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from magnetar.common.errors import ConfigError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.file_signature import signature_of
from magnetar.common.security.audit import audit_process
from prometheus_client import Counter

log = get_logger(__name__)

RELOADS: Final = Counter(
    "magnetar_service_tls_reloads",
    "Certificates of the links between services that were replaced on disk, by result.",
    ["result"],
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """PEM files: the trusted authorities, and for mutual TLS a certificate with its key."""

    trust_certs: Path | None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""
    """The name in servers' certificates, where it is not the host of their address."""

    def read(self) -> Pem:
        """Read the files. Raises ConfigError when one cannot be read, or key and certificate do not match."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a certificate and its key are given together or not at all")
        if self.certificate is not None and self.key is not None:
            pair = f"certificate {self.certificate} and key {self.key}"
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    self.certificate, self.key, _no_passphrase
                )
            except ssl.SSLError as error:
                raise ConfigError(f"{pair} cannot be used together: {error.reason or error}") from error
            except OSError as error:
                raise ConfigError(f"{pair}: {error.strerror or error}") from error
        return Pem(
            *(
                None if path is None else read_pem(path)
                for path in (self.trust_certs, self.certificate, self.key)
            )
        )

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [path for path in (self.trust_certs, self.certificate, self.key) if path is not None]


@dataclass(frozen=True, slots=True)
class Pem:
    """Contents of the files, read at one moment."""

    trust_certs: bytes | None
    certificate: bytes | None
    key: bytes | None


class ServiceCredentials:
    """The credentials in files; `watch` notices when they are replaced. Shared by servers and clients."""

    def __init__(self, files: CredentialFiles) -> None:
        """Raises ConfigError."""
        self.files = files
        self.generation = 0
        """Rises when the files were replaced."""
        self._signature = signature_of(files.paths)
        self._pem = files.read()

    def server(self, *, require_client_authentication: bool = True) -> grpc.ServerCredentials:
        """Return credentials of a port, which stay current; with clients' certificates required or not asked
        for.
        """
        served = self.generation

        def changed() -> Any:  # None: as before; gRPC's stubs do not know that
            nonlocal served
            if served == self.generation:
                return None
            served = self.generation
            return self._server_configuration()

        return grpc.dynamic_ssl_server_credentials(
            self._server_configuration(),
            changed,
            require_client_authentication=require_client_authentication,
        )

    def channel(self) -> grpc.ChannelCredentials:
        """Return the credentials of a new channel."""
        pem = self._pem
        return grpc.ssl_channel_credentials(pem.trust_certs, pem.key, pem.certificate)

    def look(self) -> bool:
        """Read the files again if they were replaced; whether they were, and can be used.

        Files that cannot be used, such as a new certificate before its key, leave the earlier ones.
        """
        signature = signature_of(self.files.paths)
        if signature == self._signature:
            return False
        try:
            pem = self.files.read()
        except ConfigError as error:
            RELOADS.labels("failure").inc()
            log.error("certificates not renewed; the earlier ones stay", reason=str(error))
            audit_process(
                "reload", files=", ".join(map(str, self.files.paths)), outcome="failed", reason=str(error)
            )
            return False
        self._signature, self._pem = signature, pem
        self.generation += 1
        RELOADS.labels("success").inc()
        log.info(
            "certificates renewed", certificate=str(self.files.certificate), trust=str(self.files.trust_certs)
        )
        audit_process("reload", files=", ".join(map(str, self.files.paths)), outcome="done")
        return True

    async def watch(self, interval_s: float) -> None:
        """Look every `interval_s` seconds, until canceled."""
        while True:
            await asyncio.sleep(interval_s)
            self.look()

    def _server_configuration(self) -> grpc.ServerCertificateConfiguration:
        pem = self._pem
        assert pem.key is not None, "a server has a certificate"
        assert pem.certificate is not None, "a server has a certificate"
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.trust_certs)


def loaded(files: CredentialFiles | None) -> ServiceCredentials | None:
    """Return the credentials in these files; None without files. Raises ConfigError."""
    return None if files is None else ServiceCredentials(files)


def read_pem(path: Path) -> bytes:
    """Return the bytes of a PEM file. Raises ConfigError naming the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in data:
        raise ConfigError(f"{path} is not a PEM file")
    return data


def _no_passphrase() -> str:
    """Keys have no passphrase; without this, OpenSSL asks for one on the terminal."""
    return ""

"""TLS and credentials towards etcd, and their renewal.

With client certificates and role-based access control, etcd takes the common name of the certificate as the
user: there is no password and no token to renew. A user and a password work as well: etcd then gives a token,
which is sent with each call and requested again when etcd no longer accepts it (simple tokens expire 300 s
after their last use, https://etcd.io/docs/v3.5/learning/design-auth-v3/).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
from magnetar.common.errors import ConfigError
from magnetar.common.runtime.file_signature import Signature, signature_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Files and a user; everything is optional. Without `tls` connections are not encrypted."""

    tls: bool = False
    trust_certs: Path | None = None
    """Authorities of etcd's certificates; None trusts the authorities that gRPC brings."""
    certificate: Path | None = None
    """A client certificate with its chain, PEM."""
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None
    refresh_s: float = 300.0
    """Seconds between checks for replaced files."""

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Read the files; None without TLS. Raises ConfigError when one cannot be read."""
        if not self.tls:
            return None
        return grpc.ssl_channel_credentials(_read(self.trust_certs), _read(self.key), _read(self.certificate))

    def password(self) -> str:
        """Return the first line of the password file. Raises ConfigError."""
        data = _read(self.password_file) or b""
        return data.decode("utf-8", "replace").partition("\n")[0].strip()

    def signature(self) -> Signature:
        """Return what identifies the files of TLS now."""
        files = (self.trust_certs, self.certificate, self.key)
        return signature_of(path for path in files if path is not None)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error

"""Files that TLS is loaded from: whether they changed, and why one cannot be loaded."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

from magnetar.common.errors import ConfigError

Signature = tuple[tuple[int, int, int, int] | None, ...]
"""Device, inode, change in nanoseconds and size of each file, None for one that is missing."""


def signature_of(paths: Sequence[str]) -> Signature:
    """The present state of the files; links are followed, so that swapped directories count."""
    return tuple(_state(path) for path in paths)


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate chain and its key. Raises ConfigError."""
    try:
        context.load_cert_chain(certificate, key or None, password=_no_passphrase)
    except ConfigError as error:
        raise ConfigError(f"{key or certificate}: {error}") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{key} is not the key of the certificate in {certificate}") from error
        raise ConfigError(f"{certificate} and {key}: no PEM files with a certificate and its key") from error
    except OSError as error:
        raise ConfigError(f"cannot read {certificate} or {key}: {error.strerror or error}") from error


def load_trust(context: ssl.SSLContext, path: str) -> None:
    """Trust the certificates of a PEM file, or take over its revocation lists. Raises ConfigError."""
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{path}: no PEM file with certificates or revocation lists") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def _no_passphrase() -> str:
    raise ConfigError("the key has a passphrase; give it without one")


def _state(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

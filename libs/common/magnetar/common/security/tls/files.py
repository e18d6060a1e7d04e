"""Loads files of TLS into contexts, and says why one cannot be loaded."""

from __future__ import annotations

import ssl

from magnetar.common.errors import ConfigError


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

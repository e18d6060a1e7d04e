"""Versions of TLS that settings allow."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

from magnetar.common.security.tls.ciphers import TLS_1_3, openssl_ciphers

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The allowed versions, by their names in settings."""


def allowed_versions(protocols: Sequence[str], ciphers: Sequence[str]) -> tuple[str, ...]:
    """The versions that both lists leave, oldest first; empty lists allow everything.

    A list of cipher suites without any of TLS 1.3 rules out TLS 1.3, and one with those alone TLS 1.2.
    """
    left = [name for name in VERSIONS if not protocols or name in protocols]
    if ciphers and not TLS_1_3.intersection(ciphers):
        left = [name for name in left if name != "TLSv1.3"]
    if ciphers and not openssl_ciphers(ciphers):
        left = [name for name in left if name != "TLSv1.2"]
    return tuple(left)


def restrict(context: ssl.SSLContext, protocols: Sequence[str], ciphers: Sequence[str]) -> None:
    """Apply checked lists of versions and cipher suites to a context."""
    allowed = allowed_versions(protocols, ciphers)
    context.minimum_version = VERSIONS[allowed[0]]
    context.maximum_version = VERSIONS[allowed[-1]]
    if text := openssl_ciphers(ciphers):
        context.set_ciphers(text)

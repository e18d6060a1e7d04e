"""The client's side of TLS: contexts for connections that brokers, commands and clients open."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import ConfigError
from magnetar.common.runtime.file_signature import Signature, signature_of
from magnetar.common.security.tls.files import load_pair, load_trust
from magnetar.common.security.tls.versions import restrict

_log = logging.getLogger(__name__)  # Clients of applications have the standard library's logging.

LOOK_EVERY_S: Final = 1.0
"""Between two checks whether the files have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """Certificates that a client trusts, and the one that it shows. Files are PEM."""

    trust_certs: str = ""
    """Trusted authorities; empty means the platform's."""
    certificate: str = ""
    """The client's certificate and chain; empty means none."""
    key: str = ""
    allow_insecure: bool = False
    """Accept any certificate for any name."""
    verify_hostname: bool = True
    protocols: Sequence[str] = ()
    """Versions of TLS; empty means all of them."""
    ciphers: Sequence[str] = ()
    """Cipher suites by Java's names; empty means OpenSSL's defaults."""


class ClientTls:
    """Makes the context for new connections; changed files count from the next one on."""

    def __init__(self, files: ClientFiles) -> None:
        """Loads the files. Raises ConfigError when they cannot be used."""
        self._files = files
        self._paths = [name for name in (files.trust_certs, files.certificate, files.key) if name]
        self._signature: Signature = ()
        self._refused: Signature = ()
        self._context = self._loaded()
        self._looked_at = time.monotonic()

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. Files that cannot be loaded leave the former one in use."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            found = signature_of(self._paths)
            if found not in (self._signature, self._refused):
                try:
                    self._context = self._loaded()
                except ConfigError as error:
                    self._refused = found
                    _log.error("changed certificates cannot be loaded; the former stay: %s", error)
        return self._context

    def _loaded(self) -> ssl.SSLContext:
        files, before = self._files, signature_of(self._paths)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        restrict(context, files.protocols, files.ciphers)
        context.check_hostname = files.verify_hostname and not files.allow_insecure
        if files.allow_insecure:
            context.verify_mode = ssl.CERT_NONE
        elif files.trust_certs:
            load_trust(context, files.trust_certs)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if files.certificate:
            load_pair(context, files.certificate, files.key)
        self._signature = before
        return context

"""The server's side of TLS: a context whose new handshakes use what was loaded last.

Each load makes a fresh context: loading into a live one would break it with half-written files, and would
only ever add trusted authorities. A handshake begins with an empty context; a callback at its begin puts the
loaded one in its place, which is cheaper than loading it each time.

There is no session resumption: a client whose authority was removed would come back by it. Tickets are off,
and because Python cannot turn off OpenSSL's memory of TLS 1.2 sessions, which belongs to the context that a
handshake began with, each handshake has one of its own: 0.14 ms and 12 KiB.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from magnetar.common.errors import ConfigError
from magnetar.common.runtime.file_signature import Signature, signature_of
from magnetar.common.security.tls.config import TlsConfig
from magnetar.common.security.tls.files import load_pair, load_trust
from magnetar.common.security.tls.revoked_certificates import CertificateId, read_revoked
from magnetar.common.security.tls.versions import restrict


class ServerTls:
    """TLS of one kind of listener."""

    def __init__(self, config: TlsConfig, protocols: Sequence[str] = (), ciphers: Sequence[str] = ()) -> None:
        """Loads the files. Raises ConfigError when they cannot be used."""
        self._config = config
        self._protocols = protocols
        self._ciphers = ciphers
        self._signature: Signature = ()
        self.generation = 0
        """How often files were loaded."""
        self._current = self._loaded()
        self._shared = self._empty()
        self._resumable = self._shared.minimum_version is not ssl.TLSVersion.TLSv1_3

    @property
    def paths(self) -> list[str]:
        """The files that are loaded."""
        config = self._config
        names = (config.certificate_file, config.key_file, config.trust_certs_file, config.crl_file)
        return [name for name in names if name]

    @property
    def signature(self) -> Signature:
        """The state of the files when they were loaded last."""
        return self._signature

    def handshake_context(self) -> ssl.SSLContext:
        """The context to begin one handshake with."""
        return self._empty() if self._resumable else self._shared

    def load(self) -> None:
        """Load the files again, for handshakes from now on. Raises ConfigError, and changes nothing then."""
        self._current = self._loaded()

    def revoked(self) -> frozenset[CertificateId]:
        """Read the revocation lists; empty without. Raises ConfigError."""
        return read_revoked(self._config.crl_file) if self._config.crl_file else frozenset()

    def _loaded(self) -> ssl.SSLContext:
        before = signature_of(self.paths)
        context = self._fresh()
        config = self._config
        load_pair(context, config.certificate_file, config.key_file)
        if context.verify_mode is not ssl.CERT_NONE:
            if config.trust_certs_file:
                load_trust(context, config.trust_certs_file)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
            if config.crl_file:
                load_trust(context, config.crl_file)
        if signature_of(self.paths) != before:
            raise ConfigError(f"{', '.join(self.paths)}: written while they were read")
        self._signature = before
        self.generation += 1
        return context

    def _empty(self) -> ssl.SSLContext:
        context = self._fresh()
        context.sni_callback = self._swap
        return context

    def _fresh(self) -> ssl.SSLContext:
        """A context without files. What OpenSSL takes from the first context of a handshake and not from the
        swapped one, as the verify mode, is set here, and so the same in all.
        """
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        restrict(context, self._protocols, self._ciphers)
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0
        if config.require_client_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        elif not config.allow_insecure:
            context.verify_mode = ssl.CERT_OPTIONAL
        if config.crl_file:
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        return context

    def _swap(self, handshake: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        """Called at the begin of each handshake, with and without a server name."""
        handshake.context = self._current

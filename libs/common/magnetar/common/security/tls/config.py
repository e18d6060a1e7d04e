"""Settings of TLS for the ports of clients. Keys and meanings are Pulsar's; files are PEM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.common.config.settings import setting
from magnetar.common.security.tls.ciphers import TLS_1_3, cipher_problems, openssl_ciphers

PROTOCOLS: Final = ("TLSv1.3", "TLSv1.2")
"""Versions of TLS that can be allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of the ports for clients."""

    enabled: bool = setting(
        False,
        "Deprecated in Pulsar, and without effect: a TLS port turns TLS on. Alone it stops the start.",
        key="tlsEnabled",
    )
    certificate_file: str = setting(
        "",
        "The certificate of the TLS ports and its chain, a PEM file, leaf first.",
        key="tlsCertificateFilePath",
    )
    key_file: str = setting(
        "", "The key of the certificate, a PEM file without a passphrase.", key="tlsKeyFilePath"
    )
    trust_certs_file: str = setting(
        "",
        "Authorities whose client certificates are accepted, a PEM file; empty means the platform's.",
        key="tlsTrustCertsFilePath",
    )
    require_client_certificate: bool = setting(
        False,
        "Refuse clients without a certificate. One that is sent and not trusted is refused in any case.",
        key="tlsRequireTrustedClientCertOnConnect",
    )
    allow_insecure: bool = setting(
        False,
        "Do not ask clients for certificates. (Pulsar accepts any certificate as genuine then, which is "
        "never done here.)",
        key="tlsAllowInsecureConnection",
    )
    protocols: tuple[str, ...] = setting(
        (), "Versions of TLS; empty means all of them.", key="tlsProtocols", choices=PROTOCOLS
    )
    ciphers: tuple[str, ...] = setting(
        (),
        "Cipher suites by Java's names: ECDHE with AES-GCM or ChaCha20, and those of TLS 1.3 together; empty "
        "means OpenSSL's defaults.",
        key="tlsCiphers",
    )
    web_protocols: tuple[str, ...] = setting(
        (),
        "Versions of TLS for HTTPS; empty means those of tlsProtocols.",
        key="webServiceTlsProtocols",
        choices=PROTOCOLS,
    )
    web_ciphers: tuple[str, ...] = setting(
        (), "Cipher suites for HTTPS; empty means those of tlsCiphers.", key="webServiceTlsCiphers"
    )
    crl_file: str = setting(
        "",
        "Certificate revocation lists of the authorities of clients, a PEM file; with it each of these "
        "authorities needs a list in there.",
        key="magnetarTlsCrlFile",
    )
    refresh_s: int = setting(
        300,
        "Seconds between checks whether the files have changed, which are then loaded for new connections; "
        "0: never. SIGHUP checks at once.",
        key="tlsCertRefreshCheckDurationSec",
        minimum=0,
    )
    handshake_timeout_ms: int = setting(
        10_000,
        "Milliseconds within which a TLS handshake must be complete.",
        key="magnetarTlsHandshakeTimeoutMs",
        minimum=1,
    )
    handshakes_max: int = setting(
        8,
        "TLS handshakes computed at a time; they share the event loop with messages.",
        key="magnetarTlsHandshakesMax",
        minimum=1,
    )
    handshakes_per_s: int = setting(
        200, "TLS handshakes begun a second; more wait.", key="magnetarTlsHandshakesPerSecond", minimum=1
    )


def tls_problems(
    config: TlsConfig, ports: Mapping[str, int | None], *, certificates_are_identities: bool = False
) -> list[str]:
    """Problems between values that are each valid.

    `ports` has the TLS ports by their keys, None where there is none. `certificates_are_identities` tells
    whether a provider takes a client's certificate for its identity.
    """
    used = [key for key, port in ports.items() if port is not None]
    found = cipher_problems("tlsCiphers", config.ciphers)
    found += cipher_problems("webServiceTlsCiphers", config.web_ciphers)
    if not found:
        found += _version_problems("tlsProtocols", config.protocols, config.ciphers)
        if config.web_protocols or config.web_ciphers:
            found += _version_problems(
                "webServiceTlsProtocols",
                config.web_protocols or config.protocols,
                config.web_ciphers or config.ciphers,
            )
    if config.enabled and not used:
        found.append(f"tlsEnabled=true opens no port: give {' or '.join(ports)}")
    if used and not (config.certificate_file and config.key_file):
        found.append(f"{used[0]} needs tlsCertificateFilePath and tlsKeyFilePath, PEM files")
    if config.require_client_certificate:
        if not used:
            found.append(
                "tlsRequireTrustedClientCertOnConnect=true asks for certificates where nothing listens with "
                f"TLS: give {' or '.join(ports)}"
            )
        if config.allow_insecure:
            found.append(
                "tlsRequireTrustedClientCertOnConnect=true and tlsAllowInsecureConnection=true exclude each "
                "other"
            )
    if config.allow_insecure and certificates_are_identities:
        found.append(
            "tlsAllowInsecureConnection=true would make every client any role with "
            "AuthenticationProviderTls: remove one of them"
        )
    files = {
        "tlsCertificateFilePath": config.certificate_file,
        "tlsKeyFilePath": config.key_file,
        "tlsTrustCertsFilePath": config.trust_certs_file,
        "magnetarTlsCrlFile": config.crl_file,
    }
    if used:
        found += [f"{key} = {name!r}: no such file" for key, name in files.items() if _is_missing(name)]
    return found


def _version_problems(key: str, protocols: Sequence[str], ciphers: Sequence[str]) -> list[str]:
    if not ciphers:
        return []
    usable = {"TLSv1.3": bool(TLS_1_3.intersection(ciphers)), "TLSv1.2": bool(openssl_ciphers(ciphers))}
    without = [name for name in protocols if not usable[name]]
    return [f"{key} has {name} and no cipher suite of it is allowed" for name in without]


def _is_missing(name: str) -> bool:
    return bool(name) and not Path(name).is_file()

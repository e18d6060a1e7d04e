"""Settings of connections that a broker or discovery opens to brokers: what it trusts, and what it shows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.common.config.settings import setting

if TYPE_CHECKING:
    from magnetar.common.security.tls.client_context import ClientFiles

_TLS_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
_TOKEN_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_DISABLED_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationDisabled"
PLUGINS: Final = ("", "tls", "token", _TLS_PLUGIN, _TOKEN_PLUGIN, _DISABLED_PLUGIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientConfig:
    """Connections of our own to other brokers."""

    tls_enabled: bool = setting(
        False, "Connect to other brokers with TLS where they have it.", key="brokerClientTlsEnabled"
    )
    trust_certs_file: str = setting(
        "",
        "Authorities of other brokers' certificates, a PEM file; empty means the platform's.",
        key="brokerClientTrustCertsFilePath",
    )
    certificate_file: str = setting(
        "",
        "The certificate that other brokers are shown, with its chain, a PEM file.",
        key="brokerClientCertificateFilePath",
    )
    key_file: str = setting("", "The key of that certificate, a PEM file.", key="brokerClientKeyFilePath")
    plugin: str = setting(
        "",
        "How other brokers are told who calls: by a certificate (tls) or a token; empty means not.",
        key="brokerClientAuthenticationPlugin",
        choices=PLUGINS,
    )
    parameters: str = setting(
        "",
        'What the plug-in needs: {"tlsCertFile":FILE,"tlsKeyFile":FILE} or tlsCertFile:FILE,tlsKeyFile:FILE; '
        "token:TEXT or file:///FILE.",
        key="brokerClientAuthenticationParameters",
        secret=True,
    )
    verify_hostname: bool = setting(
        True,
        "Check that other brokers' certificates have the names that they are reached by (Pulsar: false).",
        key="tlsHostnameVerificationEnabled",
    )

    @property
    def uses_token(self) -> bool:
        """Whether other brokers are sent a token."""
        return self.plugin in ("token", _TOKEN_PLUGIN)

    @property
    def uses_certificate(self) -> bool:
        """Whether other brokers are shown a certificate as our identity."""
        return self.plugin in ("tls", _TLS_PLUGIN)

    def token(self) -> str:
        """The token to send now; "" without. A file is read each time. Raises OSError."""
        if not self.uses_token:
            return ""
        text = self.parameters.strip()
        for prefix in ("file://", "file:"):
            if text.startswith(prefix):
                return Path(text.removeprefix(prefix)).read_text(encoding="utf-8").strip()
        return text.removeprefix("token:").strip()

    def files(self) -> ClientFiles:
        """Files for our connections: trusted authorities, and our own certificate."""
        from magnetar.common.security.tls.client_context import ClientFiles

        certificate, key = self._pair()
        return ClientFiles(
            trust_certs=self.trust_certs_file,
            certificate=certificate,
            key=key,
            verify_hostname=self.verify_hostname,
        )

    def problems(self) -> list[str]:
        """Problems between values that are each valid. Parameters are never repeated: they may be secret."""
        found = []
        certificate, key = self._pair()
        if bool(certificate) != bool(key):
            found.append("brokerClientCertificateFilePath and brokerClientKeyFilePath need each other")
        if self.uses_certificate and not certificate:
            found.append(
                "brokerClientAuthenticationPlugin=AuthenticationTls needs tlsCertFile and tlsKeyFile in "
                "brokerClientAuthenticationParameters, or brokerClientCertificateFilePath and "
                "brokerClientKeyFilePath"
            )
        if self.uses_token and not self.parameters:
            found.append(
                "brokerClientAuthenticationPlugin=AuthenticationToken needs token:TEXT or file:///FILE in "
                "brokerClientAuthenticationParameters"
            )
        files = {
            "brokerClientTrustCertsFilePath": self.trust_certs_file,
            "the certificate of brokerClient...": certificate,
            "the key of brokerClient...": key,
        }
        if self.tls_enabled:
            found += [
                f"{name} = {path!r}: no such file"
                for name, path in files.items()
                if path and not Path(path).is_file()
            ]
        return found

    def _pair(self) -> tuple[str, str]:
        """Certificate and key: those of the plug-in, else those of the keys for files."""
        given = tls_parameters(self.parameters) if self.uses_certificate else {}
        return (
            given.get("tlsCertFile", self.certificate_file),
            given.get("tlsKeyFile", self.key_file),
        )


def tls_parameters(text: str) -> dict[str, str]:
    """Parameters of AuthenticationTls, as JSON or as NAME:VALUE,NAME:VALUE; what is neither gives none."""
    text = text.strip()
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            return {}
        return {str(name): str(value) for name, value in found.items()}
    pairs = (each.partition(":") for each in text.split(","))
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}

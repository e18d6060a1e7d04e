"""Files of the secrets that the chart mounts, made as cert-manager, the hook and a user would."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from unittest import mock

from magnetar.common.security.certificates import Authority

from tests.deploy.chart import Rendered
from tools.chart.values_file import CHART

MOUNTS: Final = "/run/magnetar"
SECRETS: Final = "secrets"
"""Directory of `SecretFiles`, with a directory for each secret."""


class SecretFiles:
    """Secrets of a rendered chart as directories: certificates as its Certificates ask for, and tokens."""

    def __init__(self, chart: Rendered, directory: Path) -> None:
        self._chart = chart
        self._directory = directory / SECRETS
        self._directory.mkdir()
        certificates = [one["spec"] for one in chart.of("Certificate")]
        self._authorities = {
            str(one["secretName"]): Authority(str(one["commonName"]))
            for one in certificates
            if one.get("isCA")
        }
        self._leaves = [one for one in certificates if not one.get("isCA")]

    def issue(self) -> None:
        """Issue every certificate, anew where there is one; each file is replaced at once."""
        for spec in self._leaves:
            authority = self._authorities[str(spec["issuerRef"]["name"])]
            leaf = authority.issue(
                str(spec["commonName"]),
                dns=spec.get("dnsNames", ()),
                ips=spec.get("ipAddresses", ()),
                uris=spec.get("uris", ()),
            )
            files = {"ca.crt": authority.certificate, "tls.key": leaf.key, "tls.crt": leaf.certificate}
            self._write(str(spec["secretName"]), files)

    def make_tokens(self, scratch: Path) -> None:
        """Make the key and the tokens with the hook's own code."""
        script = importlib.util.spec_from_file_location("make_tokens", CHART / "files/make_tokens.py")
        assert script is not None
        assert script.loader is not None
        module = importlib.util.module_from_spec(script)
        script.loader.exec_module(module)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with mock.patch.dict(os.environ, {"PATH": path}):
            key, tokens = module.tokens(scratch)
        key_secret, tokens_secret = self._chart.container("make-tokens")["args"][1:]
        self._write(key_secret, {"secret.key": key})
        self._write(tokens_secret, tokens)

    def _write(self, secret: str, files: Mapping[str, bytes]) -> None:
        directory = self._directory / secret
        directory.mkdir(exist_ok=True)
        for name, content in files.items():
            new = directory / f".{name}"
            new.write_bytes(content)
            new.chmod(0o444)  # containers run as another user than the tests
            new.replace(directory / name)


def write_secrets(directory: Path, service: str, cluster: str = "magnetar") -> None:
    """Write every file that a pod of `service` may mount under MOUNTS, with right content."""
    clients, services = Authority("clients"), Authority("services")
    leaf = services.issue(f"magnetar-{service}", dns=["localhost"], uris=[f"spiffe://{cluster}/{service}"])
    for name, authority, of in (
        ("clients-tls", clients, clients.issue(f"magnetar-{service}", dns=["localhost"])),
        ("services-tls", services, leaf),
        ("etcd-tls", services, leaf),
    ):
        mount = directory / name
        mount.mkdir(parents=True)
        (mount / "ca.crt").write_bytes(authority.certificate)
        (mount / "tls.crt").write_bytes(of.certificate)
        (mount / "tls.key").write_bytes(of.key)
    for path, content in (
        ("token-key/secret.key", bytes(range(32))),
        (f"tokens/{service}.jwt", b"a.b.c"),
        ("passwords/htpasswd", b"user:$apr1$Zk3mPq7x$lZzb0lmp.gEn4RfEF9RVe1\n"),
        ("openid/ca.crt", clients.certificate),
    ):
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(content)

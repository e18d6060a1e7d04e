"""Files of the secrets that the chart mounts, made as cert-manager, the hook and a user would."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from magnetar.common.security.certificates import Authority

MOUNTS: Final = "/run/magnetar"


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

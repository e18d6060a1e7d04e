"""`magnetar dev-certs`: certificates, tokens and settings for a secure cluster on one machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from magnetar.cli.missing_packages import not_installed

if TYPE_CHECKING:
    from magnetar.common.security.certificates import Authority

SERVICES: Final = ("broker", "bookie", "discovery", "etcd", "job", "admin")
"""Services that have a certificate of the services' own authority."""

_RSA_BITS: Final = 2048
_TOKEN_KEY_BYTES: Final = 32
_PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_PLUGINS: Final = "org.apache.pulsar.client.impl.auth.Authentication"


@dataclass(frozen=True, slots=True)
class _Written:
    path: Path
    content: str


@click.command("dev-certs")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=Path("certs"))
@click.option("--cluster", default="standalone", show_default=True, metavar="NAME", help="Cluster name.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further name or address that clients reach the broker by. May be repeated.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=90,
    show_default=True,
    help="Days that the certificates are valid; authorities are for ten years.",
)
@click.option("--rsa", is_flag=True, help="RSA keys of 2048 bits in place of ECDSA on P-256.")
@click.option("--tls-only", is_flag=True, help="Settings without authentication and authorization.")
def dev_certs(
    directory: Path, cluster: str, hosts: Sequence[str], days: int, rsa: bool, tls_only: bool
) -> None:
    """Make certificates, tokens and settings for a secure cluster on this machine.

    DIRECTORY is made, and has to be empty. Everything in it is for development: keys of authorities lie
    beside what they sign.
    """
    directory = directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(directory.iterdir()):
            raise click.UsageError(f"{directory} is not empty; name another directory")
        written = [
            *_client_side(directory, hosts, days, rsa),
            *_service_side(directory, cluster, hosts, days, rsa),
            *_tokens(directory),
            *_settings(directory, cluster, tls_only),
        ]
    except ModuleNotFoundError as error:
        raise not_installed(error) or error from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or directory}: {error.strerror}") from error
    _show(written)
    click.echo(
        "\nnext:\n"
        f"  magnetar standalone --config {directory / 'standalone.conf'}\n"
        f"  magnetar produce my-topic -m hello --client-conf {directory / 'admin.conf'}\n"
        f"  magnetar admin --client-conf {directory / 'admin.conf'} brokers list"
    )


def _client_side(directory: Path, hosts: Sequence[str], days: int, rsa: bool) -> list[_Written]:
    from magnetar.common.security.certificates import Authority

    bits = _RSA_BITS if rsa else 0
    authority = Authority("magnetar development clients", rsa_bits=bits)
    found = _authority_files(authority, directory, "clients-ca", "the clients' and the broker's authority")
    names, ips = _names(hosts)
    lifetime = timedelta(days=days)
    for server in ("broker", "discovery"):
        leaf = authority.issue(server, dns=names, ips=ips, rsa_bits=bits, lifetime=lifetime)
        certificate, key = leaf.write(directory, server)
        found.append(_Written(certificate, f"the {server}'s certificate for {', '.join([*names, *ips])}"))
        found.append(_Written(key, "its key"))
    for role in ("admin", "client"):
        leaf = authority.issue(role, rsa_bits=bits, lifetime=lifetime, server=False)
        certificate, key = leaf.write(directory, role)
        found.append(_Written(certificate, f"a client's certificate for role {role}"))
        found.append(_Written(key, "its key"))
    return found


def _service_side(
    directory: Path, cluster: str, hosts: Sequence[str], days: int, rsa: bool
) -> list[_Written]:
    from magnetar.common.security.certificates import Authority

    bits = _RSA_BITS if rsa else 0
    authority = Authority("magnetar development services", rsa_bits=bits)
    found = _authority_files(authority, directory, "services-ca", "the services' own authority")
    names, ips = _names(hosts)
    for service in SERVICES:
        uri = f"spiffe://{cluster}/{service}"
        leaf = authority.issue(
            f"magnetar-{service}",
            dns=names,
            ips=ips,
            uris=[uri],
            rsa_bits=bits,
            lifetime=timedelta(days=days),
        )
        certificate, key = leaf.write(directory, f"service-{service}")
        found.append(_Written(certificate, f"certificate of {uri}"))
        found.append(_Written(key, "its key"))
    return found


def _authority_files(authority: Authority, directory: Path, name: str, content: str) -> list[_Written]:
    from magnetar.common.security.certificates import write_secret

    certificate, key = directory / f"{name}.cert.pem", directory / f"{name}.key.pem"
    certificate.write_bytes(authority.certificate)
    write_secret(key, authority.key)
    return [_Written(certificate, content), _Written(key, "its key")]


def _tokens(directory: Path) -> list[_Written]:
    from magnetar.common.security.certificates import write_secret

    secret = secrets.token_bytes(_TOKEN_KEY_BYTES)
    key = directory / "token-secret.key"
    write_secret(key, secret)
    found = [_Written(key, "the secret key of tokens (HS256, raw bytes)")]
    for role in ("admin", "client"):
        path = directory / f"{role}.jwt"
        write_secret(path, _token(secret, role).encode())
        found.append(_Written(path, f"a token for role {role} that does not expire"))
    return found


def _token(secret: bytes, role: str) -> str:
    """A JWT with the role as its only claim."""
    parts = [_encoded(json.dumps(each).encode()) for each in ({"alg": "HS256"}, {"sub": role})]
    signature = hmac.new(secret, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, _encoded(signature)])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _settings(directory: Path, cluster: str, tls_only: bool) -> list[_Written]:
    authority = directory / "clients-ca.cert.pem"
    certificate, key = directory / "broker.cert.pem", directory / "broker.key.pem"
    standalone = {
        "clusterName": cluster,
        "advertisedAddress": "localhost",
        "brokerServicePort": "",
        "brokerServicePortTls": "6651",
        "webServicePort": "",
        "webServicePortTls": "8443",
        "tlsCertificateFilePath": str(certificate),
        "tlsKeyFilePath": str(key),
        "tlsTrustCertsFilePath": str(authority),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(authority),
        "brokerClientAuthenticationPlugin": f"{_PLUGINS}Tls",
        "brokerClientAuthenticationParameters": f"tlsCertFile:{certificate},tlsKeyFile:{key}",
    }
    admin = {
        "brokerServiceUrl": "pulsar+ssl://localhost:6651/",
        "webServiceUrl": "https://localhost:8443/",
        "tlsTrustCertsFilePath": str(authority),
        "tlsAllowInsecureConnection": "false",
        "tlsEnableHostnameVerification": "true",
    }
    if not tls_only:
        standalone |= {
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}Tls,{_PROVIDERS}Token",
            "tokenSecretKey": f"file://{directory / 'token-secret.key'}",
            "authorizationEnabled": "true",
            "superUserRoles": "admin,broker",
        }
        admin["authPlugin"] = f"{_PLUGINS}Token"
        client = {**admin, "authParams": f"file://{directory / 'client.jwt'}"}
        admin["authParams"] = f"file://{directory / 'admin.jwt'}"
    else:
        client = admin
    found = []
    for name, settings, content in (
        ("standalone.conf", standalone, "settings of a standalone with all of it"),
        ("admin.conf", admin, "client.conf of role admin, for --client-conf and Apache Pulsar's commands"),
        ("client.conf", client, "the same of role client"),
    ):
        path = directory / name
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        path.write_text(f"# Written by magnetar dev-certs; for development.\n{text}", encoding="utf-8")
        found.append(_Written(path, content))
    return found


def _names(hosts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names and addresses of this machine, with further ones."""
    names, ips = ["localhost", socket.gethostname()], ["127.0.0.1", "::1"]
    for host in hosts:
        (ips if _is_address(host) else names).append(host)
    return list(dict.fromkeys(names)), list(dict.fromkeys(ips))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _show(written: Sequence[_Written]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table("file", "content")
        for each in written:
            table.add_row(str(each.path), each.content)
        Console().print(table)
        return
    click.echo("file\tcontent")
    for each in written:
        click.echo(f"{each.path}\t{each.content}")

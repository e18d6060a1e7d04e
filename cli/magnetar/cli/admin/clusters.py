"""`magnetar admin clusters`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, show
from magnetar.cli.option_values import comma_list

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

Command = TypeVar("Command", bound=Callable[..., Any])

_CLUSTER = click.argument("cluster", metavar="cluster-name")
_DOMAIN = click.option("--domain-name", required=True, help="Name of the failure domain.")
_BROKERS = click.option(
    "--broker-list", default="", help="Comma-separated brokers, as host:port of their HTTP service."
)

_TEXTS: Final = {
    "--url": ("serviceUrl", "HTTP URL of the brokers: http://HOST:PORT."),
    "--url-secure": ("serviceUrlTls", "HTTPS URL of the brokers: https://HOST:PORT."),
    "--broker-url": ("brokerServiceUrl", "Service URL of the brokers: pulsar://HOST:PORT."),
    "--broker-url-secure": ("brokerServiceUrlTls", "TLS service URL of the brokers: pulsar+ssl://HOST:PORT."),
    "--proxy-url": ("proxyServiceUrl", "URL of the proxy in front of the brokers."),
    "--auth-plugin": ("authenticationPlugin", "Client authentication plugin."),
    "--auth-parameters": ("authenticationParameters", "Parameters of the authentication plugin."),
    "--proxy-protocol": ("proxyProtocol", "Proxy protocol: SNI."),
    "--tls-trust-store-type": ("brokerClientTlsTrustStoreType", "Type of the trust store."),
    "--tls-trust-store": ("brokerClientTlsTrustStore", "Path of the trust store."),
    "--tls-trust-store-pwd": ("brokerClientTlsTrustStorePassword", "Its password."),
    "--tls-key-store-type": ("brokerClientTlsKeyStoreType", "Type of the key store."),
    "--tls-key-store": ("brokerClientTlsKeyStore", "Path of the key store."),
    "--tls-key-store-pwd": ("brokerClientTlsKeyStorePassword", "Its password."),
    "--tls-trust-certs-filepath": ("brokerClientTrustCertsFilePath", "Trusted CA certificates (PEM file)."),
    "--tls-key-filepath": ("brokerClientKeyFilePath", "Client private key (PEM file)."),
    "--tls-certs-filepath": ("brokerClientCertificateFilePath", "Client certificate (PEM file)."),
    "--ssl-factory-plugin": ("brokerClientSslFactoryPlugin", "TLS provider."),
    "--ssl-factory-plugin-params": ("brokerClientSslFactoryPluginParams", "Its parameters."),
    "--listener-name": ("listenerName", "Name of the brokers' advertised listener."),
}
_FLAGS: Final = {
    "--tls-enable": ("brokerClientTlsEnabled", "Connect to brokers over TLS."),
    "--tls-allow-insecure": ("tlsAllowInsecureConnection", "Accept any server certificate."),
    "--tls-enable-keystore": (
        "brokerClientTlsEnabledWithKeyStore",
        "Read keys and certificates from key stores.",
    ),
}


def _data_options(command: Command) -> Command:
    """Add the options for ClusterData; each has the name of its field there."""
    for option, (name, help_text) in reversed({**_TEXTS, **_FLAGS}.items()):
        is_flag = option in _FLAGS
        default = False if is_flag else None
        command = click.option(option, name, is_flag=is_flag, default=default, help=help_text)(command)
    return click.option(
        "--cluster-config-file",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="JSON file with the cluster data; other options override its values.",
    )(command)


def _data(config_file: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if config_file is not None:
        try:
            data = json.loads(config_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise click.BadParameter(f"{config_file} is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise click.BadParameter(f"{config_file} is not a JSON object")
    return {**data, **{name: value for name, value in given.items() if value not in (None, False)}}


def cluster_path(cluster: str, *rest: str) -> str:
    """Return the REST path of a cluster, or of a resource below it."""
    return "/".join(["/admin/v2/clusters", *(quote(part, safe="") for part in (cluster, *rest))])


@click.group()
def clusters() -> None:
    """Clusters."""


@clusters.command(name="list")
@click.pass_obj
def list_clusters(target: Target) -> None:
    """List all clusters."""
    show(target, "Clusters", ask(target, "GET", "/admin/v2/clusters").value)


@clusters.command()
@_CLUSTER
@click.pass_obj
def get(target: Target, cluster: str) -> None:
    """Show the URLs and other data of a cluster."""
    show(target, f"Cluster {cluster}", ask(target, "GET", cluster_path(cluster)).value)


@clusters.command()
@_CLUSTER
@_data_options
@click.pass_obj
def create(target: Target, /, cluster: str, config_file: Path | None, **given: Any) -> None:
    """Create a cluster entry."""
    ask(target, "PUT", cluster_path(cluster), _data(config_file, given))


@clusters.command()
@_CLUSTER
@_data_options
@click.pass_obj
def update(target: Target, /, cluster: str, config_file: Path | None, **given: Any) -> None:
    """Replace the data of a cluster with the given options."""
    ask(target, "POST", cluster_path(cluster), _data(config_file, given))


@clusters.command()
@_CLUSTER
@click.pass_obj
def delete(target: Target, cluster: str) -> None:
    """Delete an unused cluster."""
    ask(target, "DELETE", cluster_path(cluster))


# -- peers and migration


@clusters.command(name="get-peer-clusters")
@_CLUSTER
@click.pass_obj
def get_peer_clusters(target: Target, cluster: str) -> None:
    """List the peer clusters of a cluster."""
    show(target, f"Peers of {cluster}", ask(target, "GET", cluster_path(cluster, "peers")).value)


@clusters.command(name="update-peer-clusters")
@_CLUSTER
@click.option("--peer-clusters", required=True, help="Comma-separated clusters; '' for none.")
@click.pass_obj
def update_peer_clusters(target: Target, cluster: str, peer_clusters: str) -> None:
    """Set the peers of a cluster."""
    ask(target, "POST", cluster_path(cluster, "peers"), comma_list(peer_clusters))


@clusters.command(name="get-cluster-migration")
@_CLUSTER
@click.pass_obj
def get_cluster_migration(target: Target, cluster: str) -> None:
    """Show the migration target of a cluster."""
    show(target, f"Migration of {cluster}", ask(target, "GET", cluster_path(cluster, "migrate")).value)


@clusters.command(name="update-cluster-migration")
@_CLUSTER
@click.option("--migrated", is_flag=True, help="Redirect clients to the target now.")
@click.option("--service-url", "serviceUrl", default=None, help=_TEXTS["--url"][1])
@click.option("--service-url-secure", "serviceUrlTls", default=None, help=_TEXTS["--url-secure"][1])
@click.option("--broker-url", "brokerServiceUrl", default=None, help=_TEXTS["--broker-url"][1])
@click.option(
    "--broker-url-secure", "brokerServiceUrlTls", default=None, help=_TEXTS["--broker-url-secure"][1]
)
@click.pass_obj
def update_cluster_migration(target: Target, /, cluster: str, migrated: bool, **given: Any) -> None:
    """Set the migration target of a cluster."""
    body = {name: value for name, value in given.items() if value is not None}
    ask(target, "POST", cluster_path(cluster, "migrate"), body, {"migrated": migrated})


# -- failure domains


@clusters.command(name="list-failure-domains")
@_CLUSTER
@click.pass_obj
def list_failure_domains(target: Target, cluster: str) -> None:
    """List the failure domains of a cluster."""
    value = ask(target, "GET", cluster_path(cluster, "failureDomains")).value
    show(target, f"Failure domains of {cluster}", value)


@clusters.command(name="get-failure-domain")
@_CLUSTER
@_DOMAIN
@click.pass_obj
def get_failure_domain(target: Target, cluster: str, domain_name: str) -> None:
    """Show one failure domain."""
    value = ask(target, "GET", cluster_path(cluster, "failureDomains", domain_name)).value
    show(target, f"Failure domain {domain_name} of {cluster}", value)


@clusters.command(name="create-failure-domain")
@_CLUSTER
@_DOMAIN
@_BROKERS
@click.pass_obj
def create_failure_domain(target: Target, cluster: str, domain_name: str, broker_list: str) -> None:
    """Create a failure domain from a list of brokers."""
    body = {"brokers": comma_list(broker_list)}
    ask(target, "POST", cluster_path(cluster, "failureDomains", domain_name), body)


@clusters.command(name="update-failure-domain")
@_CLUSTER
@_DOMAIN
@_BROKERS
@click.pass_obj
def update_failure_domain(target: Target, cluster: str, domain_name: str, broker_list: str) -> None:
    """Replace the brokers of a failure domain."""
    body = {"brokers": comma_list(broker_list)}
    ask(target, "POST", cluster_path(cluster, "failureDomains", domain_name), body)


@clusters.command(name="delete-failure-domain")
@_CLUSTER
@_DOMAIN
@click.pass_obj
def delete_failure_domain(target: Target, cluster: str, domain_name: str) -> None:
    """Remove a failure domain."""
    ask(target, "DELETE", cluster_path(cluster, "failureDomains", domain_name))

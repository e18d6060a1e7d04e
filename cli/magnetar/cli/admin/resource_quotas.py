"""`magnetar admin resource-quotas`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, namespace_path, show

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.option(
    "--namespace", "-n", default=None, metavar="tenant/namespace", help="Namespace of the bundle."
)
_BUNDLE = click.option(
    "--bundle", "-b", default=None, metavar="RANGE", help="The bundle: 0x00000000_0x40000000."
)


def _path(namespace: str | None, bundle: str | None) -> str:
    """Returns the REST path of a bundle's quota, or of the default. Raises UsageError when only one is
    given.
    """
    if namespace is None and bundle is None:
        return "/admin/v2/resource-quotas"
    if namespace is None or bundle is None:
        raise click.UsageError(
            "--namespace and --bundle must be given together; omit both for the default quota"
        )
    name = namespace_path(namespace).removeprefix("/admin/v2/namespaces/")
    return f"/admin/v2/resource-quotas/{name}/{quote(bundle, safe='')}"


@click.group()
def quotas() -> None:
    """Manage the expected load of bundles."""


@quotas.command()
@_NAMESPACE
@_BUNDLE
@click.pass_obj
def get(target: Target, namespace: str | None, bundle: str | None) -> None:
    """Show the resource quota of a bundle, or the default."""
    show(target, "Resource quota", ask(target, "GET", _path(namespace, bundle)).value)


@quotas.command(name="set")
@_NAMESPACE
@_BUNDLE
@click.option(
    "--msgRateIn", "-mi", "msgRateIn", type=float, required=True, help="Inbound messages per second."
)
@click.option(
    "--msgRateOut", "-mo", "msgRateOut", type=float, required=True, help="Outbound messages per second."
)
@click.option(
    "--bandwidthIn", "-bi", "bandwidthIn", type=float, required=True, help="Inbound bytes per second."
)
@click.option(
    "--bandwidthOut", "-bo", "bandwidthOut", type=float, required=True, help="Outbound bytes per second."
)
@click.option("--memory", "-mem", "memory", type=float, required=True, help="Memory in megabytes.")
@click.option("--dynamic", "-d", is_flag=True, help="Adjust the quota to the measured load.")
@click.pass_obj
def set_quota(target: Target, /, namespace: str | None, bundle: str | None, **given: Any) -> None:
    """Set the resource quota of a bundle, or the default."""
    ask(target, "POST", _path(namespace, bundle), given)


@quotas.command(name="reset-namespace-bundle-quota")
@click.option("--namespace", "-n", required=True, metavar="tenant/namespace", help="Namespace of the bundle.")
@click.option("--bundle", "-b", required=True, metavar="RANGE", help="The bundle: 0x00000000_0x40000000.")
@click.pass_obj
def reset(target: Target, namespace: str, bundle: str) -> None:
    """Reset a bundle's resource quota to the default."""
    ask(target, "DELETE", _path(namespace, bundle))

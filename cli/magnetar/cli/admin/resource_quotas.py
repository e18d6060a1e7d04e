"""`magnetar admin resource-quotas`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, namespace_path, show

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.option("--namespace", "-n", default=None, metavar="tenant/namespace", help="The bundle's.")
_BUNDLE = click.option(
    "--bundle", "-b", default=None, metavar="RANGE", help="The bundle: 0x00000000_0x40000000."
)


def _path(namespace: str | None, bundle: str | None) -> str:
    """Returns the path of a bundle's quota, or of the default. Raises UsageError when only one is given."""
    if namespace is None and bundle is None:
        return "/admin/v2/resource-quotas"
    if namespace is None or bundle is None:
        raise click.UsageError("--namespace and --bundle go together; without both the default is meant")
    name = namespace_path(namespace).removeprefix("/admin/v2/namespaces/")
    return f"/admin/v2/resource-quotas/{name}/{quote(bundle, safe='')}"


@click.group()
def quotas() -> None:
    """How much load bundles are expected to be."""


@quotas.command()
@_NAMESPACE
@_BUNDLE
@click.pass_obj
def get(target: Target, namespace: str | None, bundle: str | None) -> None:
    """The expected load of a bundle, or of each bundle without a quota."""
    show(target, "Resource quota", ask(target, "GET", _path(namespace, bundle)).value)


@quotas.command(name="set")
@_NAMESPACE
@_BUNDLE
@click.option("--msgRateIn", "-mi", "msgRateIn", type=float, required=True, help="Messages in, a second.")
@click.option("--msgRateOut", "-mo", "msgRateOut", type=float, required=True, help="Messages out.")
@click.option("--bandwidthIn", "-bi", "bandwidthIn", type=float, required=True, help="Bytes in, a second.")
@click.option("--bandwidthOut", "-bo", "bandwidthOut", type=float, required=True, help="Bytes out.")
@click.option("--memory", "-mem", "memory", type=float, required=True, help="Megabytes.")
@click.option("--dynamic", "-d", is_flag=True, help="To be adjusted to what is measured.")
@click.pass_obj
def set_quota(target: Target, /, namespace: str | None, bundle: str | None, **given: Any) -> None:
    """Say what a bundle is expected to be, or each without a quota of its own."""
    ask(target, "POST", _path(namespace, bundle), given)


@quotas.command(name="reset-namespace-bundle-quota")
@click.option("--namespace", "-n", required=True, metavar="tenant/namespace", help="The bundle's.")
@click.option("--bundle", "-b", required=True, metavar="RANGE", help="The bundle: 0x00000000_0x40000000.")
@click.pass_obj
def reset(target: Target, namespace: str, bundle: str) -> None:
    """Expect of a bundle what is expected of all."""
    ask(target, "DELETE", _path(namespace, bundle))

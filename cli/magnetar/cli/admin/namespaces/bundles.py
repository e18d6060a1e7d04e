"""Bundle commands, and operations on all topics of a namespace, for `magnetar admin namespaces`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from magnetar.cli.admin.bulk import unload_bundles
from magnetar.cli.admin.http_client import NOTHING, ask, namespace_path, show
from magnetar.cli.admin.permissions import twice
from magnetar.cli.option_values import comma_list
from magnetar.common.cluster.bundles import ALGORITHMS, LARGEST

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.argument("namespace", metavar="tenant/namespace")
_BUNDLE = click.option("--bundle", "-b", default="", help="Only this bundle, such as 0x00000000_0x40000000.")


def _path(namespace: str, bundle: str) -> str:
    path = namespace_path(namespace)
    return f"{path}/{quote(bundle, safe='')}" if bundle else path


@click.command()
@_NAMESPACE
@_BUNDLE
@click.option(
    "--destinationBroker", "-d", "destination", default=None, help="Broker that takes over the bundle."
)
@click.pass_obj
def unload(target: Target, namespace: str, bundle: str, destination: str | None) -> None:
    """Unload all topics: another broker takes over, or the topics load again on request."""
    if bundle:
        ask(target, "PUT", f"{_path(namespace, bundle)}/unload", query={"destinationBroker": destination})
    else:
        unload_bundles(target, namespace, destination)


@click.command(name="split-bundle")
@_NAMESPACE
@click.option("--bundle", "-b", default=None, help="The bundle, 0x00000000_0x40000000.")
@click.option(
    "--bundle-type", "-bt", type=click.Choice([LARGEST]), help="Split the bundle with the most topics."
)
@click.option("--unload", "-u", "unload_too", is_flag=True, help="Unload the new bundles after the split.")
@click.option(
    "--split-algorithm-name",
    "-san",
    "algorithm",
    type=click.Choice(ALGORITHMS),
    help="Algorithm that chooses the split position.",
)
@click.option("--split-boundaries", "-sb", "positions", default="", help="Comma-separated split positions.")
@click.pass_obj
def split_bundle(
    target: Target,
    namespace: str,
    bundle: str | None,
    bundle_type: str | None,
    unload_too: bool,
    algorithm: str | None,
    positions: str,
) -> None:
    """Split a bundle."""
    which = bundle or bundle_type
    if not which or (bundle and bundle_type):
        raise click.UsageError("give either --bundle or --bundle-type")
    try:
        body: Any = [int(each, 0) for each in comma_list(positions)] or NOTHING
    except ValueError as error:
        raise click.BadParameter(f"--split-boundaries must be numbers: {error}") from error
    query = {"unload": unload_too or None, "splitAlgorithmName": algorithm}
    ask(target, "PUT", f"{_path(namespace, which)}/split", body, query)


@click.command(name="merge-bundles")
@_NAMESPACE
@click.option(
    "--bundle",
    "-b",
    required=True,
    help="Resulting bundle; its range starts and ends at existing boundaries.",
)
@click.pass_obj
def merge_bundles(target: Target, namespace: str, bundle: str) -> None:
    """Merge adjacent bundles, at the broker that owns most of them."""
    ask(target, "PUT", f"{_path(namespace, bundle)}/merge")


@click.command(name="get-topic-positions")
@_NAMESPACE
@click.option("--bundle", "-b", required=True, help="The bundle, 0x00000000_0x40000000.")
@click.option(
    "--topic-list", "-tl", "topics", multiple=True, help="Only these topics; repeat, or separate with commas."
)
@click.pass_obj
def topic_positions(target: Target, namespace: str, bundle: str, topics: tuple[str, ...]) -> None:
    """Show the hash positions of the topics of a bundle."""
    names = [name for text in topics for name in comma_list(text)]
    path = f"{_path(namespace, bundle)}/topicHashPositions"
    show(target, f"Positions in {bundle}", ask(target, "GET", path, query={"topics": names or None}).value)


@click.command(name="clear-backlog")
@_NAMESPACE
@click.option("--sub", "-s", "subscription", default="", help="Only this subscription.")
@_BUNDLE
@click.option("--force", "-f", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def clear_backlog(target: Target, namespace: str, subscription: str, bundle: str, force: bool) -> None:
    """Clear the backlog of all topics."""
    if not force:
        click.confirm(f"Acknowledge the whole backlog of {namespace}?", abort=True)
    rest = f"/{twice(subscription)}" if subscription else ""
    ask(target, "POST", f"{_path(namespace, bundle)}/clearBacklog{rest}")


@click.command()
@_NAMESPACE
@click.option("--sub", "-s", "subscription", required=True, help="Subscription name.")
@_BUNDLE
@click.pass_obj
def unsubscribe(target: Target, namespace: str, subscription: str, bundle: str) -> None:
    """Delete a subscription from all topics."""
    ask(target, "POST", f"{_path(namespace, bundle)}/unsubscribe/{twice(subscription)}")


COMMANDS: tuple[click.Command, ...] = (
    unload,
    split_bundle,
    merge_bundles,
    topic_positions,
    clear_backlog,
    unsubscribe,
)

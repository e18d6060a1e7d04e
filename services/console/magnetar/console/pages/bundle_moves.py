"""The move of a bundle to another broker, planned: who has it, who gets it, and whose clients notice."""

from __future__ import annotations

from urllib.parse import urlencode

from magnetar.console.admin_paths import namespace_path, segment
from magnetar.console.errors import AdminRefused, BadRequest
from magnetar.console.pages.bundle_map import brokers_of, find_bundle
from magnetar.console.pages.commands import admin_command
from magnetar.console.pages.plan import Plan
from magnetar.console.visit import Visit


async def planned_move(visit: Visit) -> Plan:
    """Plan an unload of a bundle, to a broker of the visitor's choice or to the leader's.

    Raises AdminRefused for a bundle without an owner, BadRequest for a destination that cannot take it.
    """
    namespace, bundle = visit.namespace(), visit.required("bundle")
    destination = visit.text("destination")
    brokers = await brokers_of(visit.admin)
    found = find_bundle(brokers, str(namespace), bundle)
    if found is None:
        raise AdminRefused(404, f"no broker owns bundle {bundle} of {namespace}: nothing is to be moved")
    if destination:
        chosen = next((each for each in brokers if each.broker_id == destination), None)
        if chosen is None:
            raise BadRequest(f"destination = {destination[:80]!r} is not a broker that is up")
        if chosen.broker_id == found.broker and len(brokers) > 1:
            raise BadRequest(f"broker {destination} owns bundle {bundle} already; choose another one")
        if chosen.is_draining:
            raise BadRequest(f"broker {destination} is draining and takes no bundles; choose another one")
    told = f"bundle {bundle} of {namespace}"
    if len(brokers) == 1:
        whither = f"Broker {found.broker} is the only one: it closes the topics and opens them again."
    elif destination:
        whither = f"Broker {found.broker} has it, and {destination} gets it."
    else:
        whither = f"Broker {found.broker} has it; the leader chooses who gets it, which may be the same one."
    clients = "Its producers and consumers"
    if found.producers is not None and found.consumers is not None:
        clients = f"{found.producers:,} producers and {found.consumers:,} consumers"
    topics = "" if found.topics is None else f" of {found.topics:,} topics"
    means = [whither, f"{clients}{topics} are disconnected, and come back by themselves. No message is lost."]
    title = f"Move {told} to {destination}" if destination and len(brokers) > 1 else f"Unload {told}"
    return Plan(
        title,
        "Move it" if destination and len(brokers) > 1 else "Unload it",
        means,
        "PUT",
        f"{namespace_path(namespace)}/{segment(bundle)}/unload",
        f"/bundle?{urlencode({'namespace': str(namespace), 'bundle': bundle})}",
        query={"destinationBroker": destination} if destination else {},
        is_final=False,
        command=admin_command(
            "namespaces",
            "unload",
            str(namespace),
            f"--bundle={bundle}",
            *([f"--destinationBroker={destination}"] if destination else []),
        ),
    )

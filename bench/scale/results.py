"""The figures of all parts, kept in a file, so that each part may be run by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from bench.scale.costs import Costs
from bench.scale.etcd_costs import EtcdCosts
from bench.scale.leader import LeaderCosts
from bench.scale.scenarios import Outcome
from bench.target import RESULTS

FILE: Final = RESULTS / "scale.json"


def load() -> dict[str, Any]:
    """Returns what has been measured so far."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def save(part: str, figures: Any) -> None:
    """Puts the figures of a part in the place of its earlier ones."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps({**load(), part: figures}, indent=1) + "\n")


def add_outcome(outcome: Outcome) -> None:
    """Adds a scenario, in the place of an earlier run of it at that size."""
    new = asdict(outcome)
    others = [each for each in load().get("outcomes", []) if _name(each) != _name(new)]
    save("outcomes", [*others, new])


def costs_now() -> Costs:
    """Returns the costs of a simulation: measured on this machine, or otherwise assumptions."""
    found = load()
    if not {"leader", "etcd", "calls"} <= found.keys():
        return Costs()
    sizes = [LeaderCosts(**each) for each in found["leader"]]
    etcd, (call_s, connect_s) = EtcdCosts(**found["etcd"]), found["calls"]
    first, last = sizes[0], sizes[-1]
    broker_s = (last.choose_ms - first.choose_ms) / (last.brokers - first.brokers) / 1e3
    return Costs(
        choose_s=max(0.0, first.choose_ms / 1e3 - broker_s * first.brokers),
        choose_broker_s=max(0.0, broker_s),
        call_s=call_s,
        connect_s=connect_s,
        event_s=etcd.mirror_event_s,
        joined_event_s=etcd.mirror_joined_s,
        key_s=etcd.mirror_key_s,
        etcd_write_s=etcd.write_s,
        etcd_read_s=etcd.read_s,
        etcd_key_s=etcd.key_s,
        etcd_event_s=etcd.event_s,
        etcd_joined_event_s=etcd.joined_event_s,
    )


def _name(outcome: Mapping[str, Any]) -> tuple[str, str]:
    return outcome["scenario"], json.dumps(outcome["size"], sort_keys=True)

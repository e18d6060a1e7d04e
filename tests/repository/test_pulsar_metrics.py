"""The metrics against what Pulsar shows: the same names mean the same, and what is absent is explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tools.pulsar_metrics import WHY, absences, recorded, why

ROOT: Final = Path(__file__).resolve().parents[2]


def shown() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each metric of docs/metrics.md; the first table that has it."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    common: set[str] = set()
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if line.startswith(("#", "Every metric has the labels ")):
            common = set() if line[0] == "#" else set(re.findall(r"`(\w+)`", line))
        row = re.fullmatch(r"\| `(\w+)` \| (\w+) \| ([^|]*) \|.*", line)
        if row:
            found.setdefault(
                row[1], (row[2], frozenset({*common, *re.findall(r"`(\w+)`", row[3])} - {"quantile"}))
            )
    return found


def test_every_metric_of_pulsar_is_shown_or_its_absence_is_explained() -> None:
    ours = shown()
    assert len(recorded()) > 200
    page = (ROOT / "docs" / "metrics.md").read_text()
    absent = absences(ours)
    for name, reason in absent:
        assert re.search(rf"^\|.* `{name}`.* \| {re.escape(reason)} \|$", page, re.MULTILINE), name
    assert len(absent) < len(recorded()) / 2


def test_no_reason_is_given_for_what_is_there() -> None:
    assert {name for name in shown() if name in recorded() and why(name)} == set()
    for pattern, _ in WHY:
        assert any(re.fullmatch(pattern, name) for name in recorded()), pattern


def test_replacement_named_for_an_absent_metric_exists() -> None:
    ours = shown()
    for _, reason in WHY:
        for name in re.findall(r"`(\w+)[`{]", reason):
            assert name in ours or name.startswith("process_"), name


@pytest.mark.parametrize("name", sorted(set(recorded()) & set(shown())))
def test_a_metric_with_pulsars_name_has_pulsars_labels(name: str) -> None:
    kind, labels = recorded()[name]
    our_kind, our_labels = shown()[name]
    if not kind:
        return  # of a bookie: its kind and labels were not recorded
    # Pulsar shows its own counters as gauges; ours say what they are.
    assert our_kind == kind or (kind, our_kind) == ("gauge", "counter"), (kind, our_kind)
    # Prometheus adds the cluster to whatever lacks it.
    missing = labels - our_labels - {"cluster", "commit", "quantile"}
    assert not missing, f"{name} lacks {sorted(missing)}"
    added = our_labels - labels
    assert not added, f"{name} has {sorted(added)} besides"

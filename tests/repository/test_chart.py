"""What can be said of the Helm chart without helm; tests/deploy renders it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
import yaml

from tools.chart.__main__ import files
from tools.chart.schema import SERVICES, SET_BY_CHART
from tools.chart.values_file import CHART, VALUES, read_values

ROOT: Final = Path(__file__).resolve().parents[2]


def values_given(name: str) -> Any:
    return yaml.safe_load((CHART / name).read_text(encoding="utf-8"))


def schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def merged(default: Any, given: Any) -> Any:
    """As helm does: maps together, everything else replaced."""
    if isinstance(default, dict) and isinstance(given, dict):
        return {
            key: merged(default.get(key), given.get(key, default.get(key))) for key in {**default, **given}
        }
    return given


def leaves(data: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if isinstance(data, dict) and data:
        return set().union(*(leaves(value, (*path, key)) for key, value in data.items()))
    return {path}


def test_schema_and_reference_follow_from_the_values() -> None:
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: make docs"


def test_every_value_is_described() -> None:
    values = read_values(VALUES.read_text(encoding="utf-8"))
    assert [value.name for value in values if not value.about.endswith(".")] == []
    told = {value.path for value in values}
    for leaf in leaves(values_given("values.yaml")):
        assert any(leaf[: len(path)] == path for path in told), ".".join(leaf)
    assert len(told) > 100


def test_the_chart_has_the_version_of_what_it_installs() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = values_given("Chart.yaml")
    assert chart["appVersion"] == told["version"]
    assert chart["name"] == "magnetar"


@pytest.mark.parametrize("name", ["values.yaml", "values-small.yaml", "values-secure.yaml"])
def test_values_files_are_what_the_schema_takes(name: str) -> None:
    jsonschema_rs.validator_for(schema()).validate(merged(values_given("values.yaml"), values_given(name)))


@pytest.mark.parametrize("service", SERVICES)
def test_settings_that_the_chart_makes_are_no_values(service: str) -> None:
    """Two places to say where metadata is would be one too many."""
    properties = schema()["properties"][service]["properties"]["config"]["properties"]
    assert not SET_BY_CHART[service] & properties.keys()
    assert len(properties) > 4
    wrong = merged(values_given("values.yaml"), {service: {"config": {"clusterName": "other"}}})
    with pytest.raises(jsonschema_rs.ValidationError, match="clusterName"):
        jsonschema_rs.validator_for(schema()).validate(wrong)


def test_templates_use_no_value_that_is_not_there() -> None:
    """helm renders a misspelled value as nothing."""
    defaults = values_given("values.yaml")
    text = "\n".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").rglob("*.*"))
    named = set()
    for word in text.replace("$root.Values", ".Values").replace("$values.", ".Values.").split(".Values.")[1:]:
        path = ""
        for character in word:
            if not (character.isalnum() or character == "."):
                break
            path += character
        named.add(path.rstrip("."))
    assert len(named) > 50
    shared = {"nodeSelector", "tolerations", "priorityClassName", "affinity", "antiAffinity", "zoneSpread"}
    for path in sorted(named - shared):
        data = defaults
        for key in path.split("."):
            if isinstance(data, dict) and data == {}:
                break
            assert key in data, f".Values.{path}"
            data = data[key]

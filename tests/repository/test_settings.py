"""Every setting does something: a key that is read and then forgotten is a promise nobody keeps."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from magnetar.bookie.config import BookieConfig
from magnetar.common.config.settings import SettingInfo
from magnetar.console.config import ConsoleConfig
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone.cluster_config import ClusterBrokerConfig
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.shared_config import SharedStandaloneConfig

ROOT = Path(__file__).resolve().parents[2]
SERVICES = (
    BookieConfig,
    ClusterBrokerConfig,
    ConsoleConfig,
    DiscoveryConfig,
    SharedStandaloneConfig,
    StandaloneConfig,
)

WITHOUT_EFFECT = {"isDelayedDeliveryDeliverAtTimeStrict", "forwardAuthorizationCredentials"}
"""Their texts say so: nothing is delivered early, and credentials always go on, set or not."""

CHECKS = {"problems", "warnings"}
"""A setting that only these look at is checked and not used."""


class Read(NamedTuple):
    module: Path
    function: str
    receiver: str
    """The last name of what the attribute is read from: `dispatch` in `config.dispatch.read_entries_max`."""


@cache
def reads() -> dict[str, set[Read]]:
    """Where attributes are read, by their names."""
    found: dict[str, set[Read]] = defaultdict(set)

    def visit(node: ast.AST, module: Path, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            receiver = node.value
            name = getattr(receiver, "attr", getattr(receiver, "id", ""))
            found[node.attr].add(Read(module, function, name))
        for child in ast.iter_child_nodes(node):
            visit(child, module, function)

    for room in ("libs", "services"):
        for path in (ROOT / room).rglob("*.py"):
            if not path.name.endswith("_pb2.py"):
                visit(ast.parse(path.read_text(encoding="utf-8")), path, "")
    return found


class Declared(NamedTuple):
    info: SettingInfo
    section: type
    attribute: str
    nested_as: str


def declared(config: Any, nested_as: str = "config") -> Iterator[Declared]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from declared(value, field.name)
        else:
            yield Declared(field.metadata["setting"], type(config), field.name, nested_as)


def is_used(setting: Declared) -> bool:
    """Read outside of where it is declared under a name of its section, or there to compute something."""
    section = setting.nested_as
    singular = section.removesuffix("s")
    names = {section, singular, f"{singular}_config", *section.split("_"), "config", "_config", "defaults"}
    home = Path(inspect.getfile(setting.section))
    return any(
        read.function not in CHECKS if read.module == home else read.receiver in names
        for read in reads()[setting.attribute]
    )


@pytest.mark.full
@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_is_read_where_something_is_done(service: type) -> None:
    settings = [one for one in declared(service()) if one.info.choices is None or len(one.info.choices) > 1]
    assert len(settings) > 10
    unused = {setting.info.key for setting in settings if not is_used(setting)}
    assert unused == WITHOUT_EFFECT & {setting.info.key for setting in settings}


@pytest.mark.parametrize("service", SERVICES)
def test_every_port_has_the_bound_of_ports(service: type) -> None:
    ports = [one.info for one in declared(service()) if one.info.key.removesuffix("Tls").endswith("Port")]
    assert ports
    assert {info.key: info.maximum for info in ports if info.maximum != 65_535} == {}

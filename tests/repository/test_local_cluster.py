"""What `make cluster` starts, and how it says what it cannot do; tests/cluster starts it really."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from magnetar.bookie.config import BookieConfig
from magnetar.cli.client_conf import read_client_conf
from magnetar.common.config.loader import Loaded, load
from magnetar.console.config import ConsoleConfig
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone.cluster_config import ClusterBrokerConfig

from tools.cluster_context import write_context
from tools.local_cluster.__main__ import arguments, main, settings_by_kind, the_only_one
from tools.local_cluster.etcd_program import find_etcd
from tools.local_cluster.plan import FIRST_PORTS, Member, Options, Plan, Ports, make_plan
from tools.local_cluster.process import Process, how_it_ended
from tools.local_cluster.screen import Screen

SETTINGS = {
    "bookie": BookieConfig,
    "broker": ClusterBrokerConfig,
    "discovery": DiscoveryConfig,
    "console": ConsoleConfig,
}


def plan(tmp_path: Path, **options: object) -> Plan:
    asked = Options(data_dir=tmp_path, **options)  # type: ignore[arg-type]
    return make_plan(asked, magnetar="magnetar", etcd="etcd", ports=Ports(take=lambda port: True))


def sets(member: Member) -> list[str]:
    """What --set says on its command line."""
    return [value for option, value in pairwise(member.command) if option == "--set"]


def test_three_of_everything_and_two_discoveries_start_in_their_order(tmp_path: Path) -> None:
    names = [member.name for member in plan(tmp_path).members]
    bookies, brokers = ([f"{kind}-{number}" for number in (1, 2, 3)] for kind in ("bookie", "broker"))
    assert names == ["etcd", *bookies, *brokers, "discovery-1", "discovery-2", "console"]
    assert not plan(tmp_path, console=False).of("console")


def test_the_console_is_told_where_clients_go(tmp_path: Path) -> None:
    made = plan(tmp_path, discoveries=0)
    (console,) = made.of("console")
    loaded = load(ConsoleConfig, overrides=sets(console)).value.cluster
    assert (loaded.admin_url, loaded.service_url) == (made.admin_url, made.service_url)
    assert console.reached_at == made.console_url == "http://127.0.0.1:8070"


@pytest.mark.parametrize("bookies", [1, 2, 3, 4])
def test_each_process_is_given_a_configuration_that_it_can_use(tmp_path: Path, bookies: int) -> None:
    for member in plan(tmp_path, bookies=bookies).members[1:]:
        loaded: Loaded[Any] = load(SETTINGS[member.kind], overrides=sets(member))
        assert loaded.value.problems() == []
        assert loaded.ignored_keys == ()


def test_ports_are_those_of_the_documentation_and_no_two_are_the_same(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert [dict(member.ports) for member in made.of("broker")] == [
        {purpose: first + number for purpose, first in FIRST_PORTS["broker"].items()} for number in range(3)
    ]
    ports = [port for member in made.members for port in member.ports.values()]
    assert len(ports) == len(set(ports))
    assert made.moved == ()
    assert (made.service_url, made.admin_url) == (
        "pulsar://127.0.0.1:6650,127.0.0.1:6651",
        "http://127.0.0.1:8080",
    )
    documented = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    for first in (first for kind in FIRST_PORTS.values() for first in kind.values()):
        assert str(first) in documented, first


def test_without_discoveries_clients_are_given_the_brokers(tmp_path: Path) -> None:
    made = plan(tmp_path, discoveries=0, brokers=2)
    assert (made.service_url, made.admin_url) == (
        "pulsar://127.0.0.1:6660,127.0.0.1:6661",
        "http://127.0.0.1:8090",
    )


def test_a_port_that_is_taken_is_replaced_by_a_free_one_and_said(tmp_path: Path) -> None:
    ports = Ports(take=lambda port: port != 6660)
    made = make_plan(Options(data_dir=tmp_path), magnetar="magnetar", etcd="etcd", ports=ports)
    instead = made.of("broker")[0].ports["clients"]
    assert instead >= 16_384
    assert made.moved == (f"broker-1: port 6660 (clients) is taken; it has {instead}",)


def test_free_ports_are_asked_for_without_a_word(tmp_path: Path) -> None:
    asked = Options(data_dir=tmp_path, free_ports=True)
    made = make_plan(asked, magnetar="magnetar", etcd="etcd")
    ports = [port for member in made.members for port in member.ports.values()]
    assert made.moved == ()
    assert len(ports) == len(set(ports))
    assert not set(ports) & {first for kind in FIRST_PORTS.values() for first in kind.values()}


def test_settings_go_to_every_process_of_their_kind_and_win(tmp_path: Path) -> None:
    given = settings_by_kind(["broker:clusterName=other", "bookie:journalSyncData=false"])
    made = plan(tmp_path, settings=given)
    assert all(sets(member)[-1] == "clusterName=other" for member in made.of("broker"))
    assert all(sets(member)[-1] == "journalSyncData=false" for member in made.of("bookie"))


@pytest.mark.parametrize("text", ["clusterName=x", "etcd:a=b", "broker:clusterName", "brokers:a=b"])
def test_setting_without_a_process_shows_the_syntax(text: str) -> None:
    with pytest.raises(ValueError, match="write bookie:KEY=VALUE"):
        settings_by_kind([text])


@pytest.mark.parametrize("given", [["--brokers", "0"], ["--bookies", "51"], ["--discoveries", "-1"]])
def test_numbers_that_make_no_cluster_are_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments().parse_args(given)


def test_etcd_is_that_of_the_environment_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_etcd(None).endswith("etcd")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="install etcd 3"):
        find_etcd("no-such-etcd")


def test_two_clusters_never_use_one_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with the_only_one(tmp_path / "data"):
        assert main(["--data-dir", str(tmp_path / "data")]) == 1
    assert "is in use by another `make cluster` (pid " in capsys.readouterr().err
    with the_only_one(tmp_path / "data"):
        pass


def test_output_fits_eighty_columns_and_has_no_color_in_a_pipe(tmp_path: Path) -> None:
    made = plan(tmp_path)
    out = io.StringIO()
    Screen(out).overview(made, [Process(member) for member in made.members], Path("data/cluster"))
    printed = out.getvalue()
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) < 80
    assert printed.count("/metrics") == len(made.members)


def test_commands_are_told_where_the_cluster_is_only_if_they_would_not_find_it(tmp_path: Path) -> None:
    for options, told in (({}, False), ({"discoveries": 1}, False), ({"discoveries": 0}, True)):
        made = plan(tmp_path, **options)
        out = io.StringIO()
        Screen(out).overview(made, [Process(member) for member in made.members], Path("data/cluster"))
        assert (f"export MAGNETAR_SERVICE_URL={made.service_url}" in out.getvalue()) == told
        # No default names this cluster and its etcd.
        (etcd,) = made.of("etcd")
        assert f"export MAGNETAR_METADATA_STORE_URL=etcd:127.0.0.1:{etcd.ports['clients']}" in out.getvalue()
        assert "export MAGNETAR_CLUSTER_NAME=local" in out.getvalue()


def test_the_end_of_a_process_is_told_in_words() -> None:
    assert [how_it_ended(status) for status in (0, 1, -9, -99)] == [
        "ended with exit code 0",
        "ended with exit code 1",
        "was ended by SIGKILL",
        "was ended by signal 99",
    ]


def test_a_context_is_written_and_its_hint_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = plan(tmp_path)
    hint = write_context("local-cluster", made.service_url, made.admin_url)
    assert hint.startswith("magnetar context use local-cluster ")
    conf = read_client_conf(tmp_path / "magnetar" / "profiles" / "local-cluster.conf")
    assert (conf.service_url, conf.admin_url) == (made.service_url, made.admin_url)
    out = io.StringIO()
    processes = [Process(member) for member in made.members]
    Screen(out).overview(made, processes, Path("data/cluster"), context_hint=hint)
    assert hint in out.getvalue()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert write_context("local-cluster", "a", "b").startswith("no context was written: ")

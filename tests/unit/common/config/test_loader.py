"""Loading: precedence, types, and every problem at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from magnetar.cli.main import main
from magnetar.common.config.loader import DEFAULT_ORIGIN, Loaded, describe, load
from magnetar.common.config.settings import setting
from magnetar.common.errors import ConfigError

from tests.examples import examples


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """The journal."""

    sync: bool = setting(True, "Sync before acknowledging.", key="journalSyncData")
    group_wait_ms: float = setting(
        1.5, "Milliseconds.", key="journalMaxGroupWaitMSec", minimum=0, maximum=100
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The service."""

    name: str = setting("standalone", "Name.", key="clusterName")
    port: int = setting(6650, "Port.", key="brokerServicePort", minimum=0, maximum=65535)
    tls_port: int | None = setting(None, "Port.", key="magnetarPort")
    roles: tuple[str, ...] = setting(("admin",), "Roles.", key="superUserRoles")
    level: str = setting("info", "Level.", key="magnetarLogLevel", choices=("info", "debug"))
    journal: JournalConfig = field(default_factory=JournalConfig)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(
    *,
    files: list[Path] | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: list[str] | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(ServiceConfig, files=files or [], environ=environ, overrides=overrides or [])
    return str(refused.value).split("\n  - ")[1:]


def test_without_anything_given_the_defaults_hold() -> None:
    loaded = load(ServiceConfig)
    assert loaded.value == ServiceConfig()
    assert set(loaded.origins.values()) == {DEFAULT_ORIGIN}
    assert loaded.ignored_keys == ()


def test_every_type_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.conf",
        "# a comment\nclusterName = us west\nbrokerServicePort=+7\nmagnetarPort: 9\n"
        "superUserRoles=a, b,,c \nmagnetarLogLevel=debug\njournalSyncData=FALSE\n"
        "journalMaxGroupWaitMSec=2e1\n",
    )
    assert load(ServiceConfig, files=[path]).value == ServiceConfig(
        name="us west",
        port=7,
        tls_port=9,
        roles=("a", "b", "c"),
        level="debug",
        journal=JournalConfig(sync=False, group_wait_ms=20.0),
    )


LAYERS = ["first file", "second file", "environment", "command line"]


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(
    st.dictionaries(
        st.sampled_from(["clusterName", "brokerServicePort", "journalMaxGroupWaitMSec"]),
        st.sets(st.sampled_from(LAYERS)),
    )
)
def test_each_key_comes_from_the_last_layer_that_gives_it(
    tmp_path: Path, given_in: dict[str, set[str]]
) -> None:
    def pairs(layer: str) -> dict[str, str]:
        return {key: str(LAYERS.index(layer)) for key, layers in given_in.items() if layer in layers}

    files = [
        write(tmp_path / layer, "".join(f"{key}={value}\n" for key, value in pairs(layer).items()))
        for layer in LAYERS[:2]
    ]
    loaded = load(
        ServiceConfig,
        files=files,
        environ={f"MAGNETAR_{key}": value for key, value in pairs("environment").items()},
        overrides=[f"{key}={value}" for key, value in pairs("command line").items()],
    )
    shown = {key: (value, origin) for key, value, origin in describe(loaded)}
    defaults = {key: value for key, value, _ in describe(load(ServiceConfig))}
    for key, default in defaults.items():
        layers = given_in.get(key, set())
        last = max((LAYERS.index(layer) for layer in layers), default=None)
        value, origin = shown[key]
        if last is None:
            assert (value, origin) == (default, DEFAULT_ORIGIN)
        else:
            assert float(value) == last
            assert LAYERS[last] in origin


@pytest.mark.parametrize(
    "name", ["MAGNETAR_brokerServicePort", "MAGNETAR_BROKER_SERVICE_PORT", "magnetar_brokerserviceport"]
)
def test_environment_names_ignore_case_and_underscores(name: str) -> None:
    loaded = load(ServiceConfig, environ={name: "1", "PATH": "/bin", "MAGNETARX": "2"})
    assert loaded.value.port == 1
    assert loaded.origins["brokerServicePort"] == f"environment {name}"


def test_our_own_keys_in_the_environment() -> None:
    assert load(ServiceConfig, environ={"MAGNETAR_MAGNETAR_LOG_LEVEL": "debug"}).value.level == "debug"


def test_command_line_environment_variables_do_not_stop_a_server() -> None:
    taken = set(variables_of(main))
    assert {
        "MAGNETAR_ADMIN_URL",
        "MAGNETAR_OFFLOAD_SERVICE",
        "MAGNETAR_SERVICE_URL",
        "MAGNETAR_TOKEN",
    } < taken
    settings = {"MAGNETAR_METADATA_STORE_URL", "MAGNETAR_CLUSTER_NAME"}
    assert load(ServiceConfig, environ=dict.fromkeys(taken - settings, "x")).value == ServiceConfig()


def variables_of(command: click.Command) -> Iterator[str]:
    """The environment variables of a command's options, and of all commands below it."""
    yield from (str(option.envvar) for option in command.params if option.envvar)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from variables_of(found)


def test_kubernetes_service_variables_are_not_settings() -> None:
    environ = {
        "MAGNETAR_BROKER_SERVICE_HOST": "10.0.0.1",
        "MAGNETAR_BROKER_SERVICE_PORT": "16650",
        "MAGNETAR_BROKER_SERVICE_PORT_HTTP": "8080",
        "MAGNETAR_BROKER_PORT": "tcp://10.0.0.1:6650",
        "MAGNETAR_BROKER_PORT_6650_TCP": "tcp://10.0.0.1:6650",
        "MAGNETAR_BROKER_PORT_6650_TCP_ADDR": "10.0.0.1",
    }
    assert load(ServiceConfig, environ=environ).value == ServiceConfig()
    [problem] = problems_of(environ={"MAGNETAR_BROKER_PORT_6650_TCP": "tcp://10.0.0.1:6650"})
    assert "MAGNETAR_BROKER_PORT_6650_TCP" in problem


def test_two_variables_for_one_key_must_agree() -> None:
    environ = {"MAGNETAR_CLUSTERNAME": "a", "MAGNETAR_CLUSTER_NAME": "b"}
    [problem] = problems_of(environ=environ)
    assert "clusterName is given twice" in problem
    assert load(ServiceConfig, environ=dict.fromkeys(environ, "a")).value.name == "a"


def test_an_empty_value_means_not_set_there(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.conf", "clusterName=eu\nbrokerServicePort=\nsuperUserRoles=\nzookeeperServers=\n"
    )
    loaded = load(
        ServiceConfig, files=[path], environ={"MAGNETAR_CLUSTER_NAME": ""}, overrides=["clusterName="]
    )
    assert loaded.value == ServiceConfig(name="eu")
    assert loaded.ignored_keys == ()


def test_an_empty_value_of_an_optional_setting_is_none() -> None:
    loaded = load(ServiceConfig, environ={"MAGNETAR_MAGNETAR_PORT": "1"}, overrides=["magnetarPort="])
    assert loaded.value.tls_port is None
    assert loaded.origins["magnetarPort"] == "command line"


def test_keys_that_only_pulsar_uses_are_listed_for_one_warning(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.conf",
        "zookeeperServers=zk:2181\ntokenSecretKey=x\ndbStorage_rocksDB_blockSize=4096\nclusterName=a\n",
    )
    loaded = load(ServiceConfig, files=[path], environ={"MAGNETAR_NUM_IO_THREADS": "4"})
    assert loaded.ignored_keys == (
        "dbStorage_rocksDB_blockSize",
        "numIOThreads",
        "tokenSecretKey",
        "zookeeperServers",
    )


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    good = write(tmp_path / "a.conf", "brokerServicePrt=1\njournalSyncData=yes\ntlsEnabled=true\n")
    bad = write(tmp_path / "bad.conf", "clusterName=\\uZZZZ\n")
    latin = tmp_path / "latin.conf"
    latin.write_bytes(b"clusterName=\xe9\n")
    problems = problems_of(
        files=[good, tmp_path / "absent.conf", bad, latin],
        environ={"MAGNETAR_BROKER_SERVICE_PORT": "65536", "MAGNETAR_CLUSTRE_NAME": "x"},
        overrides=["journalMaxGroupWaitMSec=nan", "no-equals-sign", "=x", "magnetarLogLevel=loud"],
    )
    expected = [
        "cannot read",
        "bad.conf is not a properties file",
        "latin.conf is not a properties file",
        "unknown key in the environment: MAGNETAR_CLUSTRE_NAME; did you mean clusterName?",
        "'no-equals-sign' on the command line is not of the form key=value",
        "'=x' on the command line is not of the form key=value",
        f"unknown key brokerServicePrt (file {good}); did you mean brokerServicePort?",
        f"journalSyncData = 'yes' (file {good}) is not true or false",
        "tlsEnabled = 'true'",
        "'65536' (environment MAGNETAR_BROKER_SERVICE_PORT) is above the maximum of 65535",
        "journalMaxGroupWaitMSec = 'nan' (command line) is not a number",
        "magnetarLogLevel = 'loud' (command line) is not one of info, debug",
    ]
    for text in expected:
        assert sum(text in problem for problem in problems) == 1, (text, problems)
    assert len(problems) == len(expected)


@pytest.mark.parametrize("text", ["1.5", "0x10", "1_000", "\u0661", "one", "1 2"])
def test_invalid_integer_is_refused(text: str) -> None:
    [problem] = problems_of(overrides=[f"brokerServicePort={text}"])
    assert "is not an integer" in problem


def test_a_value_below_the_minimum_is_refused() -> None:
    [problem] = problems_of(overrides=["brokerServicePort=-1"])
    assert "is below the minimum of 0" in problem


def test_a_value_that_a_later_layer_replaces_is_not_judged(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conf", "brokerServicePort=many\nauthenticationEnabled=true\n")
    loaded = load(
        ServiceConfig, files=[path], overrides=["brokerServicePort=1", "authenticationEnabled=false"]
    )
    assert loaded.value.port == 1


def test_an_unknown_key_near_one_that_only_pulsar_has_says_so() -> None:
    [problem] = problems_of(overrides=["zookeperServers=a"])
    assert "did you mean zookeeperServers (which has no use here)?" in problem
    [problem] = problems_of(overrides=["qqqqqqqq=a"])
    assert problem == "unknown key qqqqqqqq (command line)"


def test_an_outer_class_may_give_a_nested_one_other_defaults() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Composed:
        service: ServiceConfig = field(default_factory=lambda: ServiceConfig(port=1))

    loaded: Loaded[Composed] = load(Composed, overrides=["clusterName=a"])
    assert loaded.value.service == ServiceConfig(port=1, name="a")


def test_a_key_declared_twice_is_a_bug() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Twice:
        one: JournalConfig = field(default_factory=JournalConfig)
        two: JournalConfig = field(default_factory=JournalConfig)

    with pytest.raises(AssertionError, match="journalSyncData is declared twice"):
        load(Twice)


def test_describe_shows_values_as_they_would_be_written() -> None:
    rows = {
        key: (value, origin)
        for key, value, origin in describe(load(ServiceConfig, overrides=["superUserRoles=a,b"]))
    }
    assert rows["superUserRoles"] == ("a,b", "command line")
    assert rows["journalSyncData"] == ("true", DEFAULT_ORIGIN)
    assert rows["magnetarPort"] == ("", DEFAULT_ORIGIN)
    assert load(
        ServiceConfig, overrides=[f"{key}={value}" for key, (value, _) in rows.items()]
    ).value == ServiceConfig(roles=("a", "b"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSettings:
    """Settings with a secret, and those that a prefix renames."""

    prefix: str = setting("", "A prefix.", key="tokenSettingPrefix")
    secret: str = setting("", "A secret.", key="tokenSecretKey", secret=True)
    claim: str = setting("sub", "A claim.", key="tokenAuthClaim")
    count: int = setting(1, "A secret number.", key="magnetarSecretNumber", secret=True)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", ""),
        ("data:;base64,QUJD", "(hidden)"),
        ("QUJD", "(hidden)"),
        ("file:///etc/key", "file:///etc/key"),
    ],
)
def test_secrets_are_hidden_unless_they_are_paths(value: str, shown: str) -> None:
    loaded = load(SecretSettings, overrides=[f"tokenSecretKey={value}"])
    assert loaded.value.secret == value
    assert ("tokenSecretKey", shown) in [row[:2] for row in describe(loaded)]


def test_a_secret_that_cannot_be_read_is_not_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        load(SecretSettings, overrides=["magnetarSecretNumber=hunter2"])
    assert "magnetarSecretNumber = '(hidden)'" in str(caught.value)


def test_a_prefix_renames_the_settings_of_tokens() -> None:
    given = [
        "tokenSettingPrefix=my_",
        "my_tokenSecretKey=mine",
        "tokenSecretKey=other",
        "tokenAuthClaim=other",
    ]
    loaded = load(SecretSettings, overrides=given)
    assert (loaded.value.secret, loaded.value.claim) == ("mine", "sub")
    with pytest.raises(ConfigError, match="unknown key my_tokenSecretKey"):
        load(SecretSettings, overrides=given[1:])


@pytest.mark.parametrize("where", ["environment", "file", "command line"])
def test_a_prefix_renames_variables_too(tmp_path: Path, where: str) -> None:
    file = tmp_path / "prefix.conf"
    file.write_text("tokenSettingPrefix=my_\n" if where == "file" else "")
    environ = {
        "MAGNETAR_MY_TOKEN_SECRET_KEY": "mine",
        "MAGNETAR_TOKEN_AUTH_CLAIM": "other",
        **({"MAGNETAR_TOKEN_SETTING_PREFIX": "my_"} if where == "environment" else {}),
    }
    overrides = ["tokenSettingPrefix=my_"] if where == "command line" else []
    loaded = load(SecretSettings, files=[file], environ=environ, overrides=overrides)
    assert (loaded.value.secret, loaded.value.claim) == ("mine", "sub")
    with pytest.raises(ConfigError, match="MAGNETAR_MY_TOKEN_SECRET_KEY"):
        load(SecretSettings, environ={"MAGNETAR_MY_TOKEN_SECRET_KEY": "mine"})

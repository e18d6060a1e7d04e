"""Named clusters: written, chosen, shown without secrets, and switched off by anything more explicit."""

from __future__ import annotations

import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from magnetar.cli import contexts
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.context import context

SECRET = "s3cret-of-a-test"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without contexts, and an environment that switches none off."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ADMIN_URL", "SERVICE_URL", "TOKEN", "CLIENT_CONF", "PROFILE"):
        monkeypatch.delenv(f"MAGNETAR_{name}", raising=False)
    return tmp_path / "magnetar"


def run(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(context, list(arguments))
    assert done.exit_code == code, done.output
    return done


def reached(*arguments: str, **environment: str) -> tuple[str, str]:
    """The URL and the token of a command."""
    found: list[tuple[str, str]] = []

    @click.command()
    @click.option("--admin-url", envvar="MAGNETAR_ADMIN_URL", default="http://default:8080")
    @access_options
    def command(admin_url: str, access: Access) -> None:
        found.append((admin_url, access.credentials.supply().decode()))

    done = CliRunner().invoke(command, list(arguments), env=dict(environment))
    return found[0] if found else ("", done.output)


def test_a_context_is_added_chosen_used_shown_and_removed(home: Path) -> None:
    said = run("add", "prod", "--admin-url", "http://prod:8080", "--token", SECRET).output
    assert "`magnetar context use prod` makes it the current one" in said
    assert reached() == ("http://default:8080", "")
    run("use", "prod")
    assert reached() == ("http://prod:8080", SECRET)
    assert "* prod" in run("list").output
    shown = run("show").output
    assert "http://prod:8080" in shown
    assert "(hidden)" in shown
    assert SECRET not in shown + run("list").output + run("list", "--json").output
    file = home / "profiles" / "prod.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "context").stat().st_mode) == 0o600
    assert "no context is the current one now" in run("remove", "prod").output
    assert reached() == ("http://default:8080", "")
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "environment", "found"),
    [
        (["--admin-url", "http://else:1"], {}, ("http://else:1", "")),
        ([], {"MAGNETAR_ADMIN_URL": "http://else:1"}, ("http://else:1", "")),
        ([], {"MAGNETAR_TOKEN": "other"}, ("http://default:8080", "other")),
        ([], {"MAGNETAR_PROFILE": "b"}, ("http://b:8080", "of-b")),
        (["--profile", "b"], {}, ("http://b:8080", "of-b")),
        (["--token", "other"], {}, ("http://a:8080", "other")),
        ([], {}, ("http://a:8080", "of-a")),
    ],
)
def test_a_token_of_the_context_goes_to_its_own_addresses_only(
    arguments: list[str], environment: dict[str, str], found: tuple[str, str]
) -> None:
    for name in ("a", "b"):
        run("add", name, "--admin-url", f"http://{name}:8080", "--token", f"of-{name}")
    run("use", "a")
    assert reached(*arguments, **environment) == found


def test_a_token_file_is_named_and_read_later(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    run("add", "a", "--admin-url", "http://a:8080", "--token", f"file:{token}", "--use")
    assert f"authParams\tfile:{token}" in run("show", "a").output
    assert reached()[1] == SECRET
    token.write_text("newer")
    assert reached()[1] == "newer"


def test_passwords_and_values_with_backslashes_survive_and_stay_hidden() -> None:
    run(
        "add", "a", "--admin-url", "http://a:8080", "--use",
        "--auth-plugin", "basic", "--auth-params", f"me:{SECRET}\\n",
    )  # fmt: skip
    assert reached()[1] == f"me:{SECRET}\\n"
    assert SECRET not in run("show").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "a"], "give --url, --admin-url or both"),
        (["add", "a/b", "--url", "pulsar://a"], "invalid profile 'a/b'"),
        (["add", "a", "--url", "pulsar://a", "--auth-plugin", "none-such"], "unknown authentication plugin"),
        (["add", "a", "--url", "pulsar://a", "--token", "x", "--auth-params", "y"], "exclude each other"),
        (["add", "a", "--url", "pulsar://a\nwebServiceUrl=b"], "control character"),
        (["use", "none-such"], "no profile 'none-such'"),
        (["use"], "give a name, or --none"),
        (["use", "a", "--none"], "give a name, or --none"),
        (["show", "none-such"], "no profile 'none-such'"),
        (["remove", "none-such"], "no profile 'none-such'"),
    ],
)
def test_a_mistake_is_refused_with_the_next_step(home: Path, arguments: list[str], said: str) -> None:
    assert said in run(*arguments, code=2).output
    assert contexts.names() == []


def test_replacing_a_context_takes_force() -> None:
    run("add", "a", "--url", "pulsar://a")
    assert "replace it with --force" in run("add", "a", "--url", "pulsar://b", code=2).output
    run("add", "a", "--url", "pulsar://b", "--force")
    assert "pulsar://b" in run("show", "a").output


def test_hints_without_contexts_work_as_printed() -> None:
    assert "`magnetar context add NAME --admin-url URL`" in run("list").output
    run("add", "NAME", "--admin-url", "http://a:8080")
    assert "`magnetar context use NAME`" in run("show", code=1).output
    run("use", "NAME")
    run("show")
    run("use", "--none")
    assert contexts.current() == ""


def test_a_current_context_that_is_gone_is_told_and_can_be_left(home: Path) -> None:
    run("add", "a", "--admin-url", "http://a:8080", "--use")
    (home / "profiles" / "a.conf").unlink()
    assert "`magnetar context use --none`" in reached()[1]
    run("use", "--none")
    assert reached() == ("http://default:8080", "")


def test_a_variable_that_switches_the_context_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run("add", "a", "--admin-url", "http://a:8080")
    monkeypatch.setenv("MAGNETAR_TOKEN", "x")
    assert "MAGNETAR_TOKEN is set and goes first: unset it" in run("use", "a").output
    assert "MAGNETAR_TOKEN is set, so the current context has no effect" in run("list").output

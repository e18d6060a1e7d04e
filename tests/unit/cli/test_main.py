"""The `magnetar` command as a process."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MAGNETAR = str(Path(sys.executable).parent / "magnetar")
SECONDS_MAX = 60.0
ANY_PORTS = ("--set", "brokerServicePort=0", "--set", "webServicePort=0", "--set", "magnetarControlPort=0")


def environment(**extra: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.upper().startswith("MAGNETAR_")}
    return {**inherited, **extra}


def run(*arguments: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MAGNETAR, *arguments],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@contextmanager
def serving(cwd: Path, stdout: int, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [MAGNETAR, "standalone", "--log-format", "json", *ANY_PORTS, *arguments],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
        if process.stdout is not None:
            process.stdout.close()


def read_until(descriptor: int, pattern: str) -> str:
    """What comes from the descriptor until the pattern is there."""
    text = ""
    decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a character
    deadline = time.monotonic() + SECONDS_MAX
    while re.search(pattern, text) is None:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"no {pattern!r} within {SECONDS_MAX} s in {text!r}"
        data = os.read(descriptor, 65536)
        assert data, f"the output ended without {pattern!r}: {text!r}"
        text += decoder.decode(data)
    return text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_ends_cleanly_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path, subprocess.PIPE) as process:
        assert process.stdout is not None
        line = read_until(process.stdout.fileno(), r"\n")
        address = r"127\.0\.0\.1:\d+"
        assert re.fullmatch(
            rf"magnetar ready in \d+\.\d+ s: pulsar://{address} http://{address} jobs={address} "
            rf"data={tmp_path}/data\n",
            line,
        )
        process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0
        assert b'"stopped"' in errors
        assert b"Traceback" not in errors
    assert (tmp_path / "data" / "metadata.sqlite").exists()


def test_on_a_terminal_it_greets(tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    try:
        with serving(tmp_path, terminal):
            text = read_until(controller, "Ctrl-C")
            assert "Magnetar is ready" in text
            assert "pulsar://127.0.0.1:" in text
            assert "(/docs, /metrics, /health, /admin/v2)" in text
    finally:
        os.close(controller)
        os.close(terminal)


def test_everything_wrong_is_said_at_once_without_a_traceback(tmp_path: Path) -> None:
    ended = run(
        "standalone",
        "--set",
        "brokerServicePrt=1",
        "--set",
        "webServicePort=x",
        "--config",
        "nope",
        cwd=tmp_path,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    for part in ("brokerServicePort", "webServicePort", "nope"):
        assert part in ended.stderr
    assert not (tmp_path / "data").exists()


def test_security_that_is_switched_on_stops_the_start(tmp_path: Path) -> None:
    ended = run("standalone", *ANY_PORTS, "--set", "authenticationEnabled=true", cwd=tmp_path)
    assert ended.returncode == 1
    assert "authenticationEnabled" in ended.stderr


def test_print_config_says_where_each_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("webServicePort=1111\nmaxMessageSize=2048\nzookeeperServers=zk:2181\n")
    (tmp_path / "b.conf").write_text("webServicePort=2222\n")
    ended = run(
        "standalone", "--config", "a.conf", "--config", "b.conf", "--set", "brokerServicePort=3333",
        "--print-config", cwd=tmp_path, MAGNETAR_KEEP_ALIVE_INTERVAL_SECONDS="44",
    )  # fmt: skip
    assert ended.returncode == 0
    header, *lines = ended.stdout.splitlines()
    assert header.split("\t") == ["key", "value", "origin"]
    rows = {key: (value, origin) for key, value, origin in (line.split("\t") for line in lines)}
    assert rows["webServicePort"] == ("2222", "file b.conf")
    assert rows["maxMessageSize"] == ("2048", "file a.conf")
    assert rows["brokerServicePort"] == ("3333", "command line")
    assert rows["keepAliveIntervalSeconds"][0] == "44"
    assert "MAGNETAR_KEEP_ALIVE" in rows["keepAliveIntervalSeconds"][1]
    assert rows["clusterName"] == ("standalone", "default")
    assert not (tmp_path / "data").exists()

    refused = run("standalone", "--set", "nonsense=1", "--print-config", cwd=tmp_path)
    assert refused.returncode == 1
    assert "nonsense" in refused.stderr


def test_print_config_draws_a_table_on_a_terminal(tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    process = subprocess.Popen(
        [MAGNETAR, "standalone", "--print-config"],
        cwd=tmp_path,
        env=environment(COLUMNS="200", TERM="xterm"),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
    )
    try:
        text = read_until(controller, "brokerServicePort")
        assert "\t" not in text
        assert "┃" in text
    finally:
        process.kill()
        process.wait()
        os.close(controller)
        os.close(terminal)


def test_keys_of_pulsar_without_a_use_here_are_one_warning(tmp_path: Path) -> None:
    (tmp_path / "pulsar.conf").write_text("zookeeperServers=zk:2181\nloadBalancerEnabled=false\n")
    with serving(tmp_path, subprocess.PIPE, "--config", "pulsar.conf") as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), r"ready.*\n")
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS_MAX)
    # Its asyncio is in debug mode too, and may warn of what took long on a busy machine.
    warnings = [line for line in errors.decode().splitlines() if '"warning"' in line]
    (named,) = [line for line in warnings if "loadBalancerEnabled" in line or "zookeeperServers" in line]
    assert "loadBalancerEnabled, zookeeperServers" in named


def test_version_and_help(tmp_path: Path) -> None:
    assert re.fullmatch(r"magnetar, version \d+\.\d+\.\d+\n", run("--version", cwd=tmp_path).stdout)
    text = run("standalone", "--help", cwd=tmp_path).stdout
    for option in ("--config", "--set", "--data-dir", "--print-config", "--log-format"):
        assert option in text


def test_start_imports_only_needed_modules() -> None:
    """Each of these costs a tenth of a second or several megabytes."""
    program = (
        "import sys; from magnetar.cli import main, structlog_import; "
        "structlog_import.load_structlog_without_rich();"
        "import magnetar.standalone.run; print([m for m in ('aiohttp', 'rich') if m in sys.modules]);"
        "import rich.table"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ended.stderr == ""
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("line", ["admin namespaces list t", "admin topics stats t", "admin tenants list"])
def test_a_simple_call_imports_nothing_of_the_servers(line: str) -> None:
    """Each of these makes `magnetar admin` start twice as slowly."""
    heavy = ("asyncio", "google.protobuf", "magnetar.broker", "magnetar.ledger", "rich", "structlog")
    code = (
        "import sys\n"
        "from magnetar.cli.main import main\n"
        "try:\n"
        f"    main({['admin', '--admin-url', 'http://127.0.0.1:1', *line.split()[1:]]})\n"
        "except SystemExit as ended:\n"
        f"    print(ended.code, [name for name in {heavy} if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ended.stdout == "3 []\n", ended.stderr


def test_ctrl_c_ends_with_the_code_that_shells_give(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen(
            [
                MAGNETAR,
                "admin",
                "--admin-url",
                f"http://127.0.0.1:{silent.getsockname()[1]}",
                "tenants",
                "list",
            ],
            stderr=subprocess.PIPE,
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130
    assert errors == b"\nInterrupted.\n"


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is not there")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [MAGNETAR, "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == b"Error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(("url", "code"), [("etcd:127.0.0.1:1", 3), ("zk:2181", 2)])
def test_commands_about_bookies_say_what_is_missing(tmp_path: Path, url: str, code: int) -> None:
    ended = run("admin", "--metadata", url, "bookies", "list", cwd=tmp_path)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert "--metadata" in ended.stderr


def test_ctrl_c_while_a_shell_waits_for_completions_leaves_its_line_alone() -> None:
    program = (
        "import os, signal\n"
        "import click.shell_completion as completion\n"
        "from magnetar.cli.main import main\n"
        "completion.shell_complete = lambda *given: os.kill(os.getpid(), signal.SIGINT)\n"
        "main(prog_name='magnetar')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(_MAGNETAR_COMPLETE="bash_complete"),
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")

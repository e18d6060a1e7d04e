"""The pytest plug-in without a server: when it starts one, with which settings, what a failure shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

import pytest
from magnetar.testing import namespaces, standalone_process

QUICK = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio", "-p", "no:xdist")

TWO_TESTS = """
    seen = []

    def test_one(magnetar_standalone, magnetar_namespace):
        assert magnetar_standalone.admin_url == "http://127.0.0.1:1"
        seen.append(magnetar_namespace)

    def test_two(magnetar_namespace):
        assert magnetar_namespace not in seen
"""


@dataclass
class Faked:
    """A standalone that only records what happens to it."""

    events: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    start_timeout_s: float = 0.0
    admin_url: str = "http://127.0.0.1:1"
    running: bool = True
    printed: str = "start\n"
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def start(self) -> None:
        if not self.running:
            self.events.append("started again")
        self.running = True

    def kill(self) -> None:
        self.running = False

    def log(self, from_byte: int = 0) -> str:
        return self.printed[from_byte:]

    def log_bytes(self) -> int:
        return len(self.printed)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Faked:
    server = Faked()

    @contextmanager
    def standalone(settings: dict[str, str], *, start_timeout_s: float) -> Iterator[Faked]:
        server.settings, server.start_timeout_s = settings, start_timeout_s
        server.events.append("started")
        yield server
        server.events.append("stopped")

    def create_namespace(admin_url: str, hint: str, headers: Mapping[str, str]) -> str:
        server.headers.append(headers)
        server.events.append(f"created for {hint}")
        return f"public/{len(server.events)}"

    def remove_namespace(admin_url: str, namespace: str, headers: Mapping[str, str]) -> None:
        server.headers.append(headers)
        server.events.append("removed")

    monkeypatch.setattr(standalone_process, "standalone", standalone)
    monkeypatch.setattr(namespaces, "create_namespace", create_namespace)
    monkeypatch.setattr(namespaces, "remove_namespace", remove_namespace)
    return server


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUICK, *arguments)


def test_pytest_loads_it_by_its_entry_point() -> None:
    (entry,) = (each for each in entry_points(group="pytest11") if each.value == "magnetar.testing.plugin")
    assert entry.name == "magnetar"


def test_loading_it_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import json, sys, pytest\n"
        "before = set(sys.modules)\n"
        "import magnetar.testing.plugin\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    others = {
        name
        for name in loaded
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("magnetar.testing")
    }
    assert "magnetar.testing.plugin" in loaded
    assert others <= {"magnetar"}
    assert not {"asyncio", "http.client", "ssl"} & set(loaded)


def test_nothing_is_started_for_tests_that_do_not_ask(pytester: pytest.Pytester, faked: Faked) -> None:
    pytester.makepyfile("def test_one(): pass")
    run(pytester).assert_outcomes(passed=1)
    assert faked.events == []


def test_tests_share_a_standalone_and_each_has_a_namespace(pytester: pytest.Pytester, faked: Faked) -> None:
    pytester.makepyfile(TWO_TESTS)
    run(pytester).assert_outcomes(passed=2)
    assert faked.events == [
        "started",
        "created for test_one",
        "removed",
        "created for test_two",
        "removed",
        "stopped",
    ]


def test_a_killed_standalone_is_started_again_for_the_next_namespace(
    pytester: pytest.Pytester, faked: Faked
) -> None:
    pytester.makepyfile(
        """
        def test_kill(magnetar_standalone, magnetar_namespace):
            magnetar_standalone.kill()

        def test_next(magnetar_namespace):
            pass
        """
    )
    run(pytester).assert_outcomes(passed=2)
    assert faked.events[1:-1] == [
        "created for test_kill",
        "started again",
        "created for test_next",
        "removed",
    ]


def test_the_command_line_overrides_settings_of_the_ini_file(pytester: pytest.Pytester, faked: Faked) -> None:
    pytester.makeini(
        """
        [pytest]
        magnetar_settings =
            brokerDeduplicationEnabled = true
            maxMessageSize=1000
        magnetar_start_timeout_s = 7.5
        """
    )
    pytester.makepyfile("def test_one(magnetar_standalone): pass")
    given = ("--magnetar-settings", "maxMessageSize=2000", "--magnetar-settings", "clusterName=a=b")
    run(pytester, *given).assert_outcomes(passed=1)
    assert faked.settings == {
        "brokerDeduplicationEnabled": "true",
        "maxMessageSize": "2000",
        "clusterName": "a=b",
    }
    assert faked.start_timeout_s == 7.5


@pytest.mark.parametrize("wrong", ["maxMessageSize", "=5"])
def test_a_setting_without_a_key_or_value_is_refused_before_any_test(
    pytester: pytest.Pytester, faked: Faked, wrong: str
) -> None:
    pytester.makepyfile("def test_one(magnetar_standalone): pass")
    result = run(pytester, f"--magnetar-settings={wrong}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*invalid --magnetar-settings '{wrong}': write KEY=VALUE*"])
    assert faked.events == []


def test_a_timeout_that_is_no_number_is_refused(pytester: pytest.Pytester, faked: Faked) -> None:
    pytester.makeini("[pytest]\nmagnetar_start_timeout_s = soon\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*invalid magnetar_start_timeout_s 'soon': write seconds*"])


def test_a_project_gives_its_credentials_by_overriding_a_fixture(
    pytester: pytest.Pytester, faked: Faked
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def magnetar_admin_headers():
            return {"Authorization": "Bearer token"}

        def test_one(magnetar_namespace):
            pass
        """
    )
    run(pytester).assert_outcomes(passed=1)
    assert faked.headers == [{"Authorization": "Bearer token"}] * 2


def test_a_failure_shows_what_the_standalone_logged_during_that_test(
    pytester: pytest.Pytester, faked: Faked
) -> None:
    pytester.makepyfile(
        """
        def test_before(magnetar_standalone):
            magnetar_standalone.printed += "logged before\\n"

        def test_fails(magnetar_standalone):
            magnetar_standalone.printed += "logged meanwhile\\n"
            assert False

        def test_without_a_standalone_fails():
            assert False
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=2)
    output: Any = result.stdout.str()
    assert output.count("log of magnetar standalone") == 1
    result.stdout.fnmatch_lines(["*log of magnetar standalone*", "logged meanwhile"])
    result.stdout.no_fnmatch_line("logged before")


def test_a_failure_shows_the_log_of_the_standalone_that_a_module_has_in_place_of_the_session_s(
    pytester: pytest.Pytester, faked: Faked
) -> None:
    pytester.makepyfile(
        test_a="""
        def test_before(magnetar_standalone):
            magnetar_standalone.printed += "logged by the other\\n" * 9
        """,
        test_b="""
        import pytest

        class Own:
            admin_url = "http://127.0.0.1:2"
            running = True

            def start(self):
                pass

            def log(self, from_byte):
                return "logged by its own"[from_byte:]

            def log_bytes(self):
                return 17

        @pytest.fixture(scope="module")
        def magnetar_standalone():
            return Own()

        def test_fails(magnetar_namespace):
            assert False
        """,
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*log of magnetar standalone*", "logged by its own"])
    result.stdout.no_fnmatch_line("*logged by the other")


def test_a_start_that_fails_is_an_error_of_the_test_with_the_log(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def standalone(settings: dict[str, str], *, start_timeout_s: float) -> Iterator[None]:
        raise standalone_process.StartFailed("ended with status 1\n--- end of its log\nunknown key")
        yield

    monkeypatch.setattr(standalone_process, "standalone", standalone)
    pytester.makepyfile("def test_one(magnetar_namespace): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*StartFailed: ended with status 1", "*unknown key"])

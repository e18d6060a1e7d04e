"""The examples of docs/testing-your-code.md, run as a reader would: by pytest, and as a program."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.integration.harness import ROOT

PAGE = (ROOT / "docs/testing-your-code.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"(<!-- needs Docker -->\n)?```python\n(.*?)```", PAGE, re.DOTALL)
QUICK = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio")

MORE = """

import urllib.request

import pytest

names = []


def test_settings_are_in_force(magnetar_standalone):
    path = "/admin/v2/brokers/configuration/runtime"
    with urllib.request.urlopen(f"{magnetar_standalone.admin_url}{path}") as page:
        assert b'"maxMessageSize":"1048576"' in page.read().replace(b" ", b"")


@pytest.mark.parametrize("number", range(2))
def test_each_test_has_a_namespace(magnetar_standalone, magnetar_namespace, number):
    with urllib.request.urlopen(f"{magnetar_standalone.admin_url}/admin/v2/namespaces/public") as page:
        listed = page.read().decode()
    assert magnetar_namespace in listed
    assert not [name for name in names if name in listed]
    names.append(magnetar_namespace)


def test_fails(magnetar_standalone, magnetar_namespace):
    assert False
"""


def example(text: str) -> str:
    """The example with this text."""
    (found,) = [code for docker, code in EXAMPLES if not docker and text in code]
    return str(found)


def test_each_example_is_run_here_or_needs_docker() -> None:
    assert len([code for docker, code in EXAMPLES if not docker]) == 3
    assert len([code for docker, code in EXAMPLES if docker]) == 1


def test_the_example_for_pytest_passes_with_the_documented_ini_file(pytester: pytest.Pytester) -> None:
    (ini,) = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    pytester.path.joinpath("pytest.ini").write_text(ini)
    pytester.makepyfile(example("orders_are_delivered") + MORE, test_own=example("def magnetar_standalone"))
    result = pytester.runpytest_subprocess(*QUICK, "-p", "no:xdist")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*log of magnetar standalone*", "*namespace created*"])


@pytest.mark.full
def test_the_example_without_pytest_reads_what_was_sent_before_a_kill() -> None:
    code = example("broker.kill()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "b'kept'" in done.stdout.splitlines()


@pytest.mark.full
def test_each_worker_of_xdist_has_a_standalone_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(2))
        def test_one(magnetar_standalone, magnetar_namespace, number, worker_id):
            with open(f"{os.environ['SEEN']}/{worker_id}", "a") as seen:
                print(magnetar_standalone.service_url, file=seen)
        """
    )
    seen = pytester.mkdir("seen")
    monkeypatch.setenv("SEEN", str(seen))
    pytester.runpytest_subprocess(*QUICK, "-n", "2", "--dist", "each").assert_outcomes(passed=4)
    first, second = (path.read_text().split() for path in sorted(seen.iterdir()))
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]

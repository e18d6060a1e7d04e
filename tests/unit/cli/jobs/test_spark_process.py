"""How `magnetar` starts what is in magnetar-spark, which it never imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from magnetar.cli.jobs import spark_process
from magnetar.cli.main import main


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """magnetar-spark is there, with a module that is a package and one that is not."""
    package = tmp_path / "magnetar" / "spark"
    (package / "offload").mkdir(parents=True)
    monkeypatch.setattr(spark_process, "package_directory", lambda needed=(): package)
    monkeypatch.setattr(spark_process, "spark_submit", lambda: "/opt/spark/bin/spark-submit")
    return package


def test_on_this_machine_it_is_a_module_of_this_python(installed: Path) -> None:
    assert spark_process.command_of("offload", ["status"]) == [
        sys.executable,
        "-m",
        "magnetar.spark.offload",
        "status",
    ]
    found = spark_process.command_of("offload", ["run"], master="local[2]", conf=["a=b", "c=d"])
    assert found[3:] == ["run", "--master", "local[2]", "--conf", "a=b", "--conf", "c=d"]


def test_a_cluster_is_reached_by_spark_submit(installed: Path) -> None:
    found = spark_process.command_of(
        "offload", ["run", "--json"], master="spark://host:7077", conf=["a=b"], deploy_mode="client"
    )
    assert found == [
        "/opt/spark/bin/spark-submit",
        *("--master", "spark://host:7077", "--deploy-mode", "client", "--conf", "a=b"),
        str(installed / "offload" / "__main__.py"),
        *("run", "--json"),
    ]
    assert spark_process.command_of("compact", [], master="yarn")[-1] == str(installed / "compact.py")


def test_without_spark_submit_it_says_what_to_do(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_process, "spark_submit", lambda: None)
    with pytest.raises(spark_process.NoSpark, match="install pyspark or Spark"):
        spark_process.command_of("offload", [], master="yarn")


@pytest.mark.parametrize("missing", ["magnetar.spark", "pyspark", "pyarrow"])
def test_without_magnetar_spark_a_command_says_how_to_install_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        submodule_search_locations = ("/somewhere/magnetar/spark",)

    monkeypatch.setattr(spark_process, "find_spec", lambda name: None if name == missing else Found())
    done = CliRunner().invoke(main, ["offload", "run", "--topic", "t"])
    assert done.exit_code == 3
    assert missing.replace(".", "-") in done.output
    assert "make setup-spark" in done.output


def test_the_status_of_offload_needs_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        submodule_search_locations = ("/somewhere/magnetar/spark",)

    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        spark_process, "find_spec", lambda name: Found() if name == spark_process.PACKAGE else None
    )
    monkeypatch.setattr(os, "execvp", lambda file, words: started.append((file, words)))
    done = CliRunner().invoke(main, ["offload", "status", "--topic", "t"])
    assert done.exit_code == 0, done.output
    assert started[0][1][1:4] == ["-m", "magnetar.spark.offload", "status"]


def test_the_status_module_imports_no_package_of_spark() -> None:
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in ("pyspark", "pyarrow", "fsspec", "s3fs"))
    line = f"import sys; {blocked}from magnetar.spark.offload.command import main; main(['status', '--help'])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage: " in done.stdout.lower()) == (0, True), done.stderr


def test_the_commands_pass_on_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, ...]] = []

    def start(*given: Any, **more: Any) -> None:
        started.append((*given, more))

    monkeypatch.setattr(spark_process, "start", start)
    line = "offload run -t a -t b --want --location file:///x --again --every 5 --conf k=v"
    line += " --master local[3] --json"
    assert CliRunner().invoke(main, line.split()).exit_code == 0
    module, arguments, more = started[0]
    assert module == "offload"
    assert more == {"master": "local[3]", "conf": ("k=v",), "deploy_mode": ""}
    assert arguments[0] == "run"
    text = " ".join(arguments)
    assert "--topic a --topic b" in text
    assert "--want --location file:///x --again --every 5.0" in text
    assert "--json" in arguments
    assert "--exact" not in text


def test_neither_help_nor_the_commands_import_spark() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from magnetar.cli.main import main; "
        "done = CliRunner().invoke(main, ['offload', 'run', '--help']); assert done.exit_code == 0; "
        "print([name for name in ('pyspark', 'pyarrow', 'magnetar.spark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

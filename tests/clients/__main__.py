"""The client matrix by hand: `make clients`, `make clients ANCHOR=1`.

Builds the programs of all client libraries that can be built here, runs their scenarios against a
standalone and a cluster, or against Apache Pulsar, and prints a line for each verdict that is not `pass`
and a table. Exits with 1 when a scenario failed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import threading
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.brokers import apache_pulsar_jars
from tests.clients import services
from tests.clients.catalogue import BY_NAME, SCENARIOS
from tests.clients.matrix import run
from tests.clients.programs import PROGRAMS, CannotBuild, Program
from tests.clients.verdicts import APACHE, CLUSTER, STANDALONE, Outcome, Verdict, record
from tests.integration.harness import temporary_directory

_MARKS = {Outcome.PASS: "[green]yes[/]", Outcome.FAIL: "[red]NO[/]", Outcome.LACKS: "[dim]-[/]"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__.partition("\n")[0])
    parser.add_argument("--anchor", action="store_true", help="Run against Apache Pulsar 4.0.7.")
    parser.add_argument("--service", choices=(STANDALONE, CLUSTER), help="Only this one.")
    parser.add_argument("--program", action="append", help="Only programs whose name holds this text.")
    parser.add_argument("--scenario", action="append", choices=list(BY_NAME), help="Only this scenario.")
    parser.add_argument("--record", action="store_true", help="Keep the verdicts; `make docs` shows them.")
    parser.add_argument("--build-only", action="store_true", help="Build the programs and end.")
    options = parser.parse_args()
    console = Console()
    programs = _built(console, options.program or [""])
    if options.build_only:
        return
    names = [APACHE] if options.anchor else [options.service] if options.service else [STANDALONE, CLUSTER]
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in (options.scenario or BY_NAME)]
    failed = False
    for name in names:
        verdicts = _run(console, name, programs, [scenario.name for scenario in scenarios])
        _show(console, name, programs, verdicts)
        failed = failed or any(verdict.outcome is Outcome.FAIL for verdict in verdicts)
        if options.record:
            record(name, verdicts)
    sys.exit(failed)


def _built(console: Console, wanted: list[str]) -> list[Program]:
    programs = []
    for source in PROGRAMS:
        if not any(text.lower() in source.name.lower() for text in wanted):
            continue
        console.print(f"building {source.name}", highlight=False)
        try:
            programs.append(source.build())
        except CannotBuild as error:
            console.print(f"  [yellow]not built: {error}", highlight=False)
    return programs


def _run(console: Console, name: str, programs: list[Program], wanted: list[str]) -> list[Verdict]:
    scenarios = [BY_NAME[each] for each in wanted]
    directory = temporary_directory()
    lock = threading.Lock()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        console.print(f"starting {name}", highlight=False)
        service = stack.enter_context(_service(name, directory))
        progress = stack.enter_context(Progress(*columns, console=console, disable=not console.is_terminal))
        task = progress.add_task(name, total=len(programs) * len(scenarios))

        def report(verdict: Verdict) -> None:
            with lock:
                progress.advance(task)
                if verdict.outcome is not Outcome.PASS:
                    line = "\t".join((verdict.outcome, verdict.program, verdict.scenario, verdict.reason))
                    progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

        return run(programs, service, directory, report, scenarios)


def _service(name: str, directory: Path) -> contextlib.AbstractContextManager[services.Service]:
    if name == STANDALONE:
        return services.standalone(directory)
    if name == CLUSTER:
        return services.cluster(directory)
    jars = apache_pulsar_jars(print)
    if isinstance(jars, str):
        sys.exit(f"no Apache Pulsar to run against: {jars}")
    return services.apache_pulsar(jars)


def _show(console: Console, name: str, programs: list[Program], verdicts: list[Verdict]) -> None:
    table = Table("scenario", *(program.name for program in programs), title=name)
    cells = {(verdict.scenario, verdict.program): verdict.outcome for verdict in verdicts}
    for scenario in dict.fromkeys(verdict.scenario for verdict in verdicts):
        table.add_row(scenario, *(_MARKS[cells[scenario, program.name]] for program in programs))
    console.print(table)


if __name__ == "__main__":
    main()

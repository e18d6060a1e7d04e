"""Run of the client matrix: programs against one service, and the verdicts of their scenarios.

Calm scenarios come first, a few programs at a time. Then all programs at once run the disruptive ones, so
that one kill serves all of them.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.clients.catalogue import SCENARIOS, Scenario, Verb
from tests.clients.programs import Program
from tests.clients.services import Service
from tests.clients.verdicts import NO_TRANSACTIONS, Outcome, Verdict

PROGRAMS_AT_ONCE: Final = 3
PROGRAM_SECONDS_MAX: Final = 600.0
"""For one program's scenarios of one kind; each scenario has its own bound of 30 to 300 s."""
_STDERR_BYTES: Final = 8_000


Report = Callable[[Verdict], None]


def run(
    programs: Sequence[Program],
    service: Service,
    directory: Path,
    report: Report,
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> list[Verdict]:
    """Every scenario by every program; `report` hears each verdict as it comes, on any thread."""
    keys = write_keys(directory / "keys")
    calm = [scenario.name for scenario in scenarios if not scenario.disruptive]
    disruptive = [scenario.name for scenario in scenarios if scenario.disruptive]
    transactional = {scenario.name for scenario in scenarios if scenario.transactional}
    verdicts: list[Verdict] = []

    def runs(program: Program, names: list[str], kills: Kills | None) -> list[Verdict]:
        lacking = set() if program.has_transactions else transactional
        asked = [name for name in names if name not in lacking]
        lacks = [
            Verdict(program.name, name, Outcome.LACKS, NO_TRANSACTIONS) for name in names if name in lacking
        ]
        for verdict in lacks:
            report(verdict)
        return _Run(program, service, asked, keys, directory, report, kills).verdicts() + lacks

    if calm:
        with ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
            for found in pool.map(lambda program: runs(program, calm, None), programs):
                verdicts += found
    if disruptive:
        kills = Kills(service, len(programs))
        with ThreadPoolExecutor(len(programs)) as pool:
            for found in pool.map(lambda program: runs(program, disruptive, kills), programs):
                verdicts += found
    return verdicts


def write_keys(directory: Path) -> Path:
    """A pair of RSA keys for end-to-end encryption; old clients want the private one as PKCS #1."""
    directory.mkdir(parents=True, exist_ok=True)
    private, public = str(directory / "private.pem"), str(directory / "public.pem")
    for command in (
        ["openssl", "genrsa", "-traditional", "-out", private, "2048"],
        ["openssl", "pkey", "-in", private, "-pubout", "-out", public],
    ):
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return directory


class Kills:
    """One kill for all programs that run: it happens once each of them has asked for it or has ended."""

    def __init__(self, service: Service, programs: int) -> None:
        self._service = service
        self._running = programs
        self._topics: list[str] = []
        self._kills = 0
        self._failure: Exception | None = None
        self._changed = threading.Condition()

    def ask(self, topic: str) -> None:
        """Return once the broker of `topic` was killed and serves again."""
        with self._changed:
            number = self._kills
            self._topics.append(topic)
            self._kill_when_all_have_asked()
            while self._kills == number:
                if not self._changed.wait(PROGRAM_SECONDS_MAX):
                    raise TimeoutError("the other programs neither ended nor asked for a kill")
            if self._failure is not None:
                raise self._failure

    def ended(self) -> None:
        """Hear that a program asks no more."""
        with self._changed:
            self._running -= 1
            self._kill_when_all_have_asked()

    def _kill_when_all_have_asked(self) -> None:
        if not self._topics or len(self._topics) < self._running:
            return
        try:
            self._service.kill(self._topics)
        except Exception as failure:  # every program that waits is told
            self._failure = failure
        self._topics = []
        self._kills += 1
        self._changed.notify_all()


@dataclass
class _Run:
    """One program's run of some scenarios, from its start to its last verdict."""

    program: Program
    service: Service
    scenarios: list[str]
    keys: Path
    directory: Path
    report: Report
    kills: Kills | None
    found: dict[str, Verdict] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        """Run it; a scenario without a verdict failed."""
        if not self.scenarios:
            if self.kills is not None:
                self.kills.ended()
            return []
        prefix = f"{self.program.name.lower().replace(' ', '-')}-{uuid.uuid4().hex[:8]}"
        command = [*self.program.command, self.service.endpoint.service_url, prefix, str(self.keys)]
        errors = self.directory / f"{prefix}.stderr"
        begun = ""
        try:
            with (
                contextlib.suppress(BrokenPipeError),  # it ended before it read an answer
                errors.open("wb") as stderr,
                subprocess.Popen(
                    [*_dies_with_this_process(), *command, *self.scenarios],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    cwd=self.program.directory,
                ) as process,
            ):
                assert process.stdin is not None
                assert process.stdout is not None
                overdue = threading.Timer(PROGRAM_SECONDS_MAX, process.kill)
                overdue.start()
                try:
                    for line in process.stdout:
                        begun = self._hear(line.rstrip("\n").split("\t"), process.stdin) or begun
                finally:
                    overdue.cancel()
                    process.kill()
        finally:
            if self.kills is not None:
                self.kills.ended()
        for name in self.scenarios:
            if name not in self.found:
                tail = " ".join(errors.read_bytes()[-_STDERR_BYTES:].decode(errors="replace").split())
                where = "it ended in this scenario" if name == begun else "it ended before this scenario"
                self._note(Verdict(self.program.name, name, Outcome.FAIL, f"{where}: {tail}"))
        return [self.found[name] for name in self.scenarios]

    def _hear(self, words: list[str], answers: IO[str]) -> str | None:
        """Take one line; returns the scenario that it begins."""
        match words:
            case ["begin", name]:
                return name
            case ["ask", verb, *arguments]:
                try:
                    answer = "\t".join(("done", *filter(None, [self._do(Verb(verb), arguments)])))
                except Exception as failure:  # the program's scenario fails with it
                    answer = f"error\t{type(failure).__name__}: {failure}".replace("\n", " ")
                answers.write(f"{answer}\n")
                answers.flush()
            case [outcome, name, *reason] if outcome in list(Outcome):
                self._note(Verdict(self.program.name, name, Outcome(outcome), " ".join(reason)))
            case _:
                raise AssertionError(
                    f"{self.program.name} printed {words!r}, which is no line of the contract"
                )
        return None

    def _do(self, verb: Verb, arguments: list[str]) -> str:
        if verb is not Verb.KILL:
            return self.service.do(verb, arguments)
        assert self.kills is not None, "a calm scenario asked for a kill"
        self.kills.ask(arguments[0])
        return ""

    def _note(self, verdict: Verdict) -> None:
        self.found[verdict.scenario] = verdict
        self.report(verdict)


def _dies_with_this_process() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []

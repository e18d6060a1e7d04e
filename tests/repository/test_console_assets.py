"""Third-party files of the console are the ones that were pinned, with their licenses."""

from __future__ import annotations

from pathlib import Path

from tools.console_assets import ASSETS, AXE, STATIC, TEST_ASSETS, problems

OWN = {"console.css", "console.js", "icon.svg"}


def test_files_of_others_are_as_pinned_and_nothing_else_is_there() -> None:
    assert problems() == []
    assert problems(AXE, TEST_ASSETS) == []
    assert {path.name for path in STATIC.iterdir()} == OWN | {asset.name for asset in ASSETS}


def test_a_changed_file_and_a_missing_one_are_found(tmp_path: Path) -> None:
    (tmp_path / ASSETS[0].name).write_text("changed")
    found = problems(tmp_path)
    assert len(found) == len(ASSETS)
    assert "SHA-256" in found[0]
    assert "not found" in found[1]

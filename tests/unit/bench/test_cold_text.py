"""Text to be published is that of files, in the same order each time, and does not end."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bench.cold.text import files, texts
from bench.table import into_page, lines


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two text files, and what is none."""
    root = tmp_path / "packages"
    (root / "b").mkdir(parents=True)
    (root / "__pycache__").mkdir()
    (root / "a.py").write_bytes(b"one\n\n\xff\xfe two\r\nthree")
    (root / "b" / "README").write_bytes(b"four\n")
    (root / "b" / "picture.txt").write_bytes(b"\x89PNG\0\0")
    (root / "c.so").write_bytes(b"not by its suffix")
    (root / "link.py").symlink_to(root / "a.py")
    (root / "__pycache__" / "d.py").write_bytes(b"compiled\n")
    return root


def test_only_text_files_are_taken_and_no_link_is_followed(root: Path) -> None:
    assert [key for _, key in files([root])] == ["packages/a.py", "packages/b/README"]


def test_every_line_is_a_message_byte_for_byte_with_its_file_as_key(root: Path) -> None:
    found = list(itertools.islice(texts(directories=[root]), 5))
    assert [text.payload for text in found] == [b"one", b"", b"\xff\xfe two", b"three", b"four"]
    assert {text.key for text in found[:4]} == {"packages/a.py"}
    assert found[0].properties == {"suffix": ".py", "round": "0"}
    assert found[4].suffix == "none"
    assert found[0].changed_ms == (root / "a.py").stat().st_mtime_ns // 1_000_000


def test_when_all_files_are_through_they_begin_anew(root: Path) -> None:
    found = list(itertools.islice(texts(directories=[root]), 10))
    assert [text.payload for text in found[5:]] == [text.payload for text in found[:5]]
    assert [text.round for text in found] == [0] * 5 + [1] * 5


def test_pieces_put_together_are_the_file(root: Path) -> None:
    found = list(itertools.islice(texts(4, directories=[root]), 6))
    assert [len(text.payload) for text in found] == [4, 4, 4, 4, 2, 4]
    assert b"".join(text.payload for text in found[:5]) == (root / "a.py").read_bytes()


def test_a_machine_without_text_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no text file"):
        next(texts(directories=[tmp_path]))


def test_a_table_of_figures_has_about_three_digits_of_each() -> None:
    assert lines(["figure", "value"], [["a", 1234.5], ["b", 12.345], ["c", 1.2345], ["d", 5_000_000]]) == [
        "| figure | value |",
        "| --- | ---: |",
        "| a | 1,234 |",
        "| b | 12.3 |",
        "| c | 1.23 |",
        "| d | 5,000,000 |",
    ]


def test_a_table_goes_between_the_marks_of_a_page_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- costs: begin -->\nold\n<!-- costs: end -->\nb\n")
    for _ in range(2):
        into_page(page, "costs", ["| new |"])
        assert page.read_text() == "a\n<!-- costs: begin -->\n| new |\n<!-- costs: end -->\nb\n"
    with pytest.raises(ValueError, match="proof"):
        into_page(page, "proof", [])

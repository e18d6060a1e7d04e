"""Bytecode of tests and sources, compiled once ahead of a run with several processes.

In a fresh clone, processes that start together would each compile much of it again.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import py_compile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).parent.parent
SOURCES = ("libs", "services", "cli", "spark", "tools", "bench")


def is_rewritten(path: Path, patterns: list[str]) -> bool:
    """Tell whether pytest rewrites the assertions of a file, and keeps the result under a name of its own."""
    return path.name == "conftest.py" or any(fnmatch(path.name, pattern) for pattern in patterns)


def compiled(path: Path, patterns: list[str]) -> Path:
    """Return where the bytecode of a source file is kept."""
    if is_rewritten(path, patterns):
        return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
    return Path(importlib.util.cache_from_source(str(path)))


def outdated(config: pytest.Config) -> Iterator[Path]:
    """Yield the sources, and the tests among a run's arguments, that have no bytecode or older bytecode."""
    patterns = config.getini("python_files")
    chosen = [ROOT / argument.partition("::")[0] for argument in config.args]
    directories = [*(ROOT / name for name in SOURCES), *filter(Path.is_dir, chosen)]
    for path in sorted({path for directory in directories for path in directory.rglob("*.py")}):
        kept = compiled(path, patterns)
        if not kept.exists() or kept.stat().st_mtime < path.stat().st_mtime:
            yield path


def compile_one(config: pytest.Config, path: Path) -> None:
    """Write the bytecode of one source file. An error in it is left to the test that imports it."""
    patterns = config.getini("python_files")
    try:
        if is_rewritten(path, patterns):
            source_hash, code = rewrite._rewrite_test(path, config)
            kept = compiled(path, patterns)
            if rewrite.try_makedirs(kept.parent):
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, kept)
        else:
            py_compile.compile(str(path), doraise=True)
    except (OSError, SyntaxError, ValueError, py_compile.PyCompileError):
        return


def compile_ahead(config: pytest.Config) -> int:
    """Compile on all cores what a run is about to import; return the number of files."""
    files = list(outdated(config))
    shards = [files[first :: multiprocessing.cpu_count()] for first in range(multiprocessing.cpu_count())]
    forked = multiprocessing.get_context("fork")
    processes = [forked.Process(target=compile_all, args=(config, shard)) for shard in shards if shard]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return len(files)


def compile_all(config: pytest.Config, files: list[Path]) -> None:
    for path in files:
        compile_one(config, path)

"""Sphinx configuration of the documentation site: `make docs-site`.

The pages are plain CommonMark that also reads well in a repository browser; the sources are those of the
whole repository, so that links between docs/ and its root work. What only a site needs is added while it is
built: the tree of pages, and an index.html that leads to the landing page.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx

ROOT: Final = Path(__file__).resolve().parent.parent

project = "Magnetar"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
version = release
extensions = ["myst_parser"]
root_doc = "docs/README"
source_suffix = {".md": "markdown"}
include_patterns = ["docs/*.md", "docs/**/*.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "bench", "data", "libs", "services", "site", "spark", "tests"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
html_theme = "furo"
html_title = f"Magnetar {release}"
html_copy_source = False
html_show_copyright = False

TREE: Final = {
    "Use it": [
        "quickstart",
        "features",
        "client",
        "testing-your-code",
        "clients",
        "cli",
        "coming-from",
        "admin",
        "spark",
        "schemas",
        "compaction",
        "transactions",
        "encryption",
    ],
    "Operate it": [
        "operations",
        "explain",
        "console",
        "top",
        "find",
        "sizing",
        "scale",
        "cluster",
        "bookies",
        "autorecovery",
        "discovery",
        "compose",
        "kubernetes",
        "kubernetes-run",
        "kubernetes-run-secure",
        "images",
        "dashboards",
        "logging",
        "backup",
        "security",
        "authentication",
    ],
    "Develop it": [
        "/CONTRIBUTING",
        "style",
        "architecture",
        "storage",
        "metadata-keys",
        "testing",
        "faults",
        "mutations",
        "benchmarks",
        "storage-benchmarks",
        "security-benchmarks",
        "compaction-benchmarks",
        "transactions-benchmarks",
        "client-benchmarks",
        "decisions/README",
        "dependencies",
    ],
    "Reference": ["configuration", "metrics", "client-api", "/CHANGELOG"],
}
"""Pages by part, in the order of the site's navigation."""


def toctree(caption: str, pages: list[str]) -> str:
    lines = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


def without_links_to_code(text: str) -> str:
    """Reduces links to files that are not pages of the site to their text."""

    def reduced(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        return match[0] if "://" in target or target.endswith((".md", ".svg")) else label

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(?:#[^)]*)?\)", reduced, text)


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = without_links_to_code(source[0])
    if name == root_doc:
        source[0] += "".join(toctree(caption, pages) for caption, pages in TREE.items())
    elif name == "docs/decisions/README":
        source[0] += toctree("Decisions", re.findall(r"\]\(([\w-]+)\.md\)", source[0]))


def redirect(app: Sphinx, error: Exception | None) -> None:
    """Writes the site's index.html, which leads to the landing page."""
    if error is not None:
        return
    target = f"{root_doc}.html"
    refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
    page = f'<!doctype html>{refresh}<a href="{target}">{project}</a>'
    (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
    app.connect("build-finished", redirect)

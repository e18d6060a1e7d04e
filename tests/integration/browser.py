"""Debian's chromium, and what tests ask a page of the console."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

from tools.console_assets import AXE
from tools.deploy_setup import program

if TYPE_CHECKING:  # loaded where a browser starts
    from playwright.sync_api import Browser, BrowserContext, Page

Scheme = Literal["light", "dark"]

SHOWN_MS_MAX: Final = 20_000
VIEWS: Final = [
    pytest.param(("light", 1280), id="desk"),
    pytest.param(("dark", 390), id="phone"),
]
"""Color schemes with widths in pixels."""

SCREENSHOTS: Final = "MAGNETAR_CONSOLE_SCREENSHOTS"
"""The environment's directory for pictures of pages; without it there are none."""


@contextmanager
def started_chromium() -> Iterator[Browser]:
    """A browser; skips where there is none."""
    path = program("chromium")
    if path is None:
        pytest.skip("chromium is not installed; `make deploy-setup` installs it on Debian")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def screen(
    browser: Browser, scheme: Scheme, width: int, *, ignore_https_errors: bool = False
) -> Iterator[BrowserContext]:
    """A screen of this width in pixels, whose user likes light or dark pages."""
    made = browser.new_context(
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
        ignore_https_errors=ignore_https_errors,
    )
    made.set_default_timeout(SHOWN_MS_MAX)
    yield made
    made.close()


@contextmanager
def clean_page(context: BrowserContext, ignored: str = r"(?!)") -> Iterator[Page]:
    """A page that has to end without an error of a script, or a refusal of the policy.

    Messages that match `ignored` are no errors.
    """
    made, errors = context.new_page(), list[str]()
    made.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    unexpected = [each for each in errors if not re.search(ignored, each)]
    assert not unexpected, f"the page reported {unexpected}"


def shows(page: Page, selector: str, text: str | re.Pattern[str]) -> None:
    """Wait until an element has this text."""
    page.locator(selector, has_text=text).first.wait_for()


def fits(page: Page) -> bool:
    """Whether a page is no wider than the screen."""
    width: int = page.evaluate("document.documentElement.scrollWidth")
    return page.viewport_size is not None and width <= page.viewport_size["width"]


@cache
def _axe() -> str:
    return (AXE / "axe.min.js").read_text(encoding="utf-8")


def barriers(page: Page) -> list[str]:
    """Return what axe finds that is serious or critical: the rule, where, and why."""
    page.evaluate(f"() => {{ {_axe()} }}")
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [
        f"{each['id']}: {json.dumps(node['target'])}: {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def picture(page: Page, name: str) -> None:
    """Write a picture of what the screen shows, where the environment names a directory."""
    directory = os.environ.get(SCREENSHOTS)
    if directory and page.viewport_size is not None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}-{page.viewport_size['width']}.png")

"""pytest plug-in: a standalone for the session and a namespace for each test. pytest loads it by its entry
point.

With pytest-xdist each worker process has a standalone of its own. Nothing is started, and nothing but the
standard library is imported, before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from magnetar.testing.standalone_process import StandaloneProcess

OPTION: Final = "--magnetar-settings"
SETTINGS_INI: Final = "magnetar_settings"
START_TIMEOUT_INI: Final = "magnetar_start_timeout_s"

FIXTURE: Final = "magnetar_standalone"

_latest: Final = pytest.StashKey["StandaloneProcess"]()
"""The standalone of the latest test of a session that used one."""

_log_begin: Final = pytest.StashKey["tuple[StandaloneProcess, int]"]()
"""That standalone, and the length of its log in bytes, when a test began."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini settings."""
    parser.getgroup("magnetar").addoption(
        OPTION,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Setting of the standalone that tests use; may be repeated; overrides magnetar_settings.",
    )
    parser.addini(
        SETTINGS_INI, "Settings of the standalone that tests use, one KEY=VALUE a line.", type="linelist"
    )
    parser.addini(
        START_TIMEOUT_INI, "Limit of the start of the standalone that tests use, in seconds.", default="60"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse malformed settings before any test runs."""
    settings_of(config)
    _start_timeout_s(config)


def settings_of(config: pytest.Config) -> dict[str, str]:
    """Return the standalone's settings; the command line overrides the ini file. Raises pytest.UsageError."""
    settings = {}
    for source, lines in ((SETTINGS_INI, config.getini(SETTINGS_INI)), (OPTION, config.getoption(OPTION))):
        for line in lines:
            key, equals, value = line.partition("=")
            if not key.strip() or not equals:
                raise pytest.UsageError(f"invalid {source} {line!r}: write KEY=VALUE")
            settings[key.strip()] = value.strip()
    return settings


def _start_timeout_s(config: pytest.Config) -> float:
    text = config.getini(START_TIMEOUT_INI)
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"invalid {START_TIMEOUT_INI} {text!r}: write seconds") from None


@pytest.fixture(scope="session")
def magnetar_standalone(request: pytest.FixtureRequest) -> Iterator[StandaloneProcess]:
    """A running standalone, shared by all tests of the session; of each worker with pytest-xdist."""
    from magnetar.testing.standalone_process import standalone

    config = request.config
    with standalone(settings_of(config), start_timeout_s=_start_timeout_s(config)) as process:
        yield process


@pytest.fixture(scope="session")
def magnetar_admin_headers() -> Mapping[str, str]:
    """HTTP headers of the calls that make namespaces; override it where the standalone asks for
    credentials.
    """
    return {}


@pytest.fixture
def magnetar_namespace(
    request: pytest.FixtureRequest,
    magnetar_standalone: StandaloneProcess,
    magnetar_admin_headers: Mapping[str, str],
) -> Iterator[str]:
    """The name of an empty namespace, `public/NAME`, removed with its topics after the test.

    Starts the standalone again if an earlier test stopped or killed it.
    """
    from magnetar.testing.namespaces import create_namespace, remove_namespace

    magnetar_standalone.start()
    namespace = create_namespace(magnetar_standalone.admin_url, request.node.name, magnetar_admin_headers)
    yield namespace
    if magnetar_standalone.running:
        remove_namespace(magnetar_standalone.admin_url, namespace, magnetar_admin_headers)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where the standalone's log begins for this test."""
    process = item.session.stash.get(_latest, None)
    if process is not None:
        item.stash[_log_begin] = (process, process.log_bytes())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show what the standalone logged during a test that failed."""
    report = yield
    process: StandaloneProcess | None = getattr(item, "funcargs", {}).get(FIXTURE)
    if process is not None:
        item.session.stash[_latest] = process
        if report.failed:
            report.sections.append(("log of magnetar standalone", _logged_during(item, process)))
    return report


def _logged_during(item: pytest.Item, process: StandaloneProcess) -> str:
    from magnetar.testing.standalone_process import LOG_TAIL_BYTES

    known, begin = item.stash.get(_log_begin, (None, 0))
    if known is not process:
        begin = 0  # it was started for this test
    return process.log(max(begin, process.log_bytes() - LOG_TAIL_BYTES)) or "(nothing)"

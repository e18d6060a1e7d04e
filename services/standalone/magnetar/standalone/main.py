"""The `magnetar` command. What a command does is imported when it runs, so that the others start quickly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from magnetar.common.obs.logs import LogFormat


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="magnetar", prog_name="magnetar")
def main() -> None:
    """Magnetar: publish-subscribe messaging that speaks the protocol of Apache Pulsar."""


@main.command()
@click.option(
    "--config",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file of key=value settings; later ones win. A broker.conf or standalone.conf of Pulsar will do.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting; wins over everything else."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Where messages and metadata are kept; made when it is not there.",
)
@click.option(
    "--print-config", "show", is_flag=True, help="Show every setting and where it came from, then exit."
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="How log lines look; auto is console on a terminal and json elsewhere.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log this and what is worse.",
)
def standalone(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    data_dir: Path,
    show: bool,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Run broker and storage in this process.

    Clients connect to pulsar://127.0.0.1:6650; HTTP is on port 8080.
    """
    _load_structlog_without_rich()
    if show:
        from magnetar.standalone.print_config import print_config

        sys.exit(print_config(files, overrides))
    from magnetar.standalone.run import run

    sys.exit(
        run(files=files, overrides=overrides, data_dir=data_dir, log_format=log_format, log_level=log_level)
    )


def _load_structlog_without_rich() -> None:
    # structlog imports rich when it finds it, for tracebacks that we do not draw: 0.15 s and 5 MB at each
    # start. Rich stays importable for what does use it.
    hidden = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        if hidden is None:
            del sys.modules["rich"]
        else:
            sys.modules["rich"] = hidden

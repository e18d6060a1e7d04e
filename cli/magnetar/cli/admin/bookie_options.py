"""Common options of commands that query bookies: lost bookies, and how to reach the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from magnetar.common.security.services.credentials import CredentialFiles

Command = TypeVar("Command", bound=Callable[..., None])

_PEM = click.Path(exists=True, dir_okay=False, path_type=Path)

_OPTIONS = (
    click.option(
        "--without",
        multiple=True,
        metavar="ID",
        help="A bookie that is gone for good, and is not waited for; may be given several times.",
    ),
    click.option(
        "--bookie-trust-certs",
        type=_PEM,
        metavar="FILE",
        help="Certificates that vouch for bookies (PEM): turns TLS to them on.",
    ),
    click.option("--bookie-cert", type=_PEM, metavar="FILE", help="A certificate to show to bookies (PEM)."),
    click.option("--bookie-key", type=_PEM, metavar="FILE", help="The key of that certificate (PEM)."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieOptions:
    """The given values."""

    without: tuple[str, ...] = ()
    """Ids of bookies that are gone for good."""
    tls: CredentialFiles | None = None


def bookie_options(command: Command) -> Command:
    """Add them to a command, which gets `bookies`."""

    @wraps(command)
    def with_bookies(
        *args: Any,
        without: tuple[str, ...],
        bookie_trust_certs: Path | None,
        bookie_cert: Path | None,
        bookie_key: Path | None,
        **given: Any,
    ) -> None:
        tls = _tls(bookie_trust_certs, bookie_cert, bookie_key)
        command(*args, bookies=BookieOptions(without=without, tls=tls), **given)

    for option in reversed(_OPTIONS):
        with_bookies = option(with_bookies)
    return cast("Command", with_bookies)


def _tls(trust_certs: Path | None, certificate: Path | None, key: Path | None) -> CredentialFiles | None:
    if trust_certs is None:
        if certificate is not None or key is not None:
            raise click.UsageError("--bookie-cert and --bookie-key go with --bookie-trust-certs")
        return None
    from magnetar.common.security.services.credentials import CredentialFiles

    return CredentialFiles(trust_certs=trust_certs, certificate=certificate, key=key)

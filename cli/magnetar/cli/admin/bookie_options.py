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
        help="Id of a bookie that is permanently lost and is not queried; repeat for several.",
    ),
    click.option(
        "--bookie-trust-certs",
        type=_PEM,
        metavar="FILE",
        help="Trusted CA certificates for bookies (PEM file); enables TLS to bookies.",
    ),
    click.option(
        "--bookie-cert", type=_PEM, metavar="FILE", help="Client certificate for bookies (PEM file)."
    ),
    click.option("--bookie-key", type=_PEM, metavar="FILE", help="Private key of --bookie-cert (PEM file)."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieOptions:
    """Values of the options of `bookie_options`."""

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
            raise click.UsageError("--bookie-cert and --bookie-key need --bookie-trust-certs")
        return None
    from magnetar.common.security.services.credentials import CredentialFiles

    return CredentialFiles(trust_certs=trust_certs, certificate=certificate, key=key)

"""Rack commands of `magnetar admin bookies`; they call a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, show

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_RACKS: Final = "/admin/v2/bookies/racks-info"


def _path(bookie: str) -> str:
    return f"{_RACKS}/{quote(bookie, safe='')}"


def racks_placement(target: Target) -> None:
    show(target, "Racks", ask(target, "GET", _RACKS).value)


def list_known(target: Target) -> None:
    show(target, "Bookies", ask(target, "GET", "/admin/v2/bookies/all").value)


def get_rack(target: Target, bookie: str) -> None:
    show(target, f"Rack of {bookie}", ask(target, "GET", _path(bookie)).value)


def set_rack(target: Target, bookie: str, rack: str, hostname: str, group: str) -> None:
    if not rack.strip("/"):
        raise click.BadParameter(
            "invalid rack name: write it as a path without spaces, such as /rack-1 or /region/zone"
        )
    ask(target, "POST", _path(bookie), {"rack": rack, "hostname": hostname}, {"group": group})


def delete_rack(target: Target, bookie: str) -> None:
    ask(target, "DELETE", _path(bookie))

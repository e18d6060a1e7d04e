"""Named clusters: profiles as files, and which of them is the current one.

A context is a profile, a file with the keys of Pulsar's client.conf; the file `context` beside the profiles
has the name of the current one. Files are private (0600): they may hold credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from magnetar.cli.client_conf import check_profile_name, config_directory, profile_path

_VARIABLES: Final = (
    "MAGNETAR_ADMIN_URL",
    "MAGNETAR_SERVICE_URL",
    "MAGNETAR_TOKEN",
    "MAGNETAR_CLIENT_CONF",
    "MAGNETAR_PROFILE",
)
"""Variables that switch the current context off: a token of one service is never sent to another."""


def names(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the names of all contexts."""
    return sorted(path.stem for path in (config_directory(environ) / "profiles").glob("*.conf"))


def current(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the name of the current context; empty without one."""
    try:
        return (config_directory(environ) / "context").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def overriding_variable(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the variable that switches the current context off; empty when it is in effect."""
    return next((name for name in _VARIABLES if environ.get(name)), "")


def in_effect(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the file of the current context; None without one. Raises UsageError for one that is gone."""
    name = "" if overriding_variable(environ) else current(environ)
    if not name:
        return None
    try:
        return profile_path(name, environ)
    except click.UsageError as error:
        raise click.UsageError(
            f"the current context cannot be read: {error.message}; choose one with "
            "`magnetar context use NAME`, or none with `magnetar context use --none`"
        ) from error


def choose(name: str, environ: Mapping[str, str] = os.environ) -> None:
    """Makes a context the current one; an empty name leaves none. Raises UsageError, OSError."""
    path = config_directory(environ) / "context"
    if not name:
        path.unlink(missing_ok=True)
        return
    profile_path(name, environ)
    _write(path, f"{name}\n")


def write(name: str, settings: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Path:
    """Writes a context with these keys of client.conf, replacing one of that name. Raises UsageError,
    OSError.
    """
    check_profile_name(name)
    lines = []
    for key, value in settings.items():
        if not value.isprintable():
            raise click.UsageError(f"the value for {key} has a line break or another control character")
        escaped = value.replace("\\", "\\\\")
        lines.append(f"{key}={escaped}\n")
    path = config_directory(environ) / "profiles" / f"{name}.conf"
    _write(path, "".join(lines))
    return path


def remove(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Removes a context; returns whether it was the current one. Raises UsageError, OSError."""
    profile_path(name, environ).unlink()
    was_current = current(environ) == name
    if was_current:
        choose("", environ)
    return was_current


def _write(path: Path, text: str) -> None:
    """Replaces a file as a whole; only its owner can read it."""
    import tempfile  # takes milliseconds that commands without a change of contexts do not have

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mkstemp creates with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

"""The debug bundle: what is asked for, within which bounds, and the archive with its manifest.

Each part is asked for by itself: one that fails is named in the manifest, and the others go on.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from magnetar.cli.debug.redaction import redact_text, redact_value

PART_BYTES_MAX: Final = 8 << 20
"""Maximum bytes of one file in the archive; longer ones are cut, logs at their beginning."""

TOTAL_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of all files together, before compression."""

EXPLAINED_MAX: Final = 20
"""Maximum subscriptions that are explained, those with the largest backlogs."""

Get = Callable[[str, float], Any]
"""Returns the value at a path of the admin API within so many seconds. Raises ClickException."""

_V2: Final = "/admin/v2"
_TOP: Final = "/admin/magnetar/v1/broker-stats/top"

PARTS: Final[Sequence[tuple[str, str]]] = (
    ("broker/version.json", f"{_V2}/brokers/version"),
    ("broker/configuration.json", f"{_V2}/brokers/configuration/runtime"),
    ("broker/changed-settings.json", f"{_V2}/brokers/configuration/values"),
    ("broker/internal-configuration.json", f"{_V2}/brokers/internal-configuration"),
    ("broker/load-report.json", f"{_V2}/broker-stats/load-report"),
    ("broker/memory.json", f"{_V2}/broker-stats/allocator-stats/default"),
    ("broker/metrics.txt", "/metrics"),
    ("broker/tasks.json", "/admin/magnetar/v1/brokers/tasks"),
    ("broker/ended-clients.json", "/admin/magnetar/v1/connections/explain"),
    ("cluster/brokers.json", f"{_V2}/brokers"),
    ("cluster/leader.json", f"{_V2}/brokers/leaderBroker"),
    ("cluster/clusters.json", f"{_V2}/clusters"),
    ("cluster/bookie-racks.json", f"{_V2}/bookies/racks-info"),
    ("cluster/bookies.json", f"{_TOP}?of=bookies&limit=1000"),
    ("cluster/broker-load.json", f"{_TOP}?of=brokers&limit=1000"),
    ("cluster/namespaces.json", f"{_TOP}?of=namespaces&limit=1000"),
    ("cluster/orphans.json", "/admin/magnetar/v1/orphans"),
    ("stats/topics-by-rate.json", f"{_TOP}?of=topics&limit=1000"),
    ("stats/topics-by-backlog.json", f"{_TOP}?of=topics&sort=msgBacklog&limit=1000"),
    ("stats/subscriptions.json", f"{_TOP}?of=subscriptions&sort=msgBacklog&limit=200&reasons=true"),
)
"""Files of the archive and the paths that are asked for them."""


@dataclass(slots=True)
class Bundle:
    """Collects files until a deadline, by a monotonic clock, and within the limits of bytes."""

    known_secrets: Sequence[str] = ()
    deadline: float = float("inf")
    clock: Callable[[], float] = time.monotonic
    files: dict[str, bytes] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by the file that is missing."""
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes that were left out, by file."""

    @property
    def remaining_s(self) -> float:
        return self.deadline - self.clock()

    def add(self, name: str, value: Any) -> None:
        """Adds a JSON value, or a text as it is, without secrets."""
        if isinstance(value, str):
            text = redact_text(value, self.known_secrets)
        else:
            text = json.dumps(redact_value(value, self.known_secrets), indent=1)
        self._keep(name, text.encode(), at_end=False)

    def add_log(self, path: Path) -> None:
        """Adds the end of a log file, without secrets."""
        name = f"logs/{len(self.files)}-{path.name}"
        try:
            with path.open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                file.seek(max(0, size - PART_BYTES_MAX))
                data = file.read(PART_BYTES_MAX)
        except OSError as error:
            self.failures[name] = f"{path}: {error.strerror}"
            return
        if size > len(data):
            self.cut[name] = size - len(data)
            data = data.partition(b"\n")[2]  # A secret that the cut went through has lost its beginning.
        text = redact_text(data.decode(errors="replace"), self.known_secrets)
        self._keep(name, text.encode(), at_end=True)

    def _keep(self, name: str, data: bytes, *, at_end: bool) -> None:
        room = min(PART_BYTES_MAX, TOTAL_BYTES_MAX - sum(map(len, self.files.values())))
        if len(data) > room:
            self.cut[name] = self.cut.get(name, 0) + len(data) - room
            data = (data[-room:] if at_end else data[:room]) if room > 0 else b""
        self.files[name] = data

    def ask(self, get: Get, name: str, path: str) -> Any:
        """Adds the answer at a path; returns it, None when it failed."""
        import click

        if self.remaining_s <= 0:
            self.failures[name] = "not asked for: the time limit was reached"
            return None
        try:
            value = get(path, self.remaining_s)
        except click.ClickException as error:
            self.failures[name] = redact_text(error.format_message(), self.known_secrets)
            return None
        self.add(name, value)
        return value

    def write(self, path: Path, facts: dict[str, Any], now_s: float) -> None:
        """Writes the archive with its manifest; only its owner can read it. Raises OSError."""
        manifest = {
            **redact_value(facts, self.known_secrets),
            "files": {name: len(data) for name, data in self.files.items()},
            "failed": self.failures,
            "cutBytes": self.cut,
        }
        root = path.name.removesuffix(".tar.gz")
        members = {"manifest.json": json.dumps(manifest, indent=1).encode(), **self.files}
        with open(path, "xb", opener=_private) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(f"{root}/{name}")
                info.size, info.mtime, info.mode = len(data), int(now_s), 0o600
                archive.addfile(info, io.BytesIO(data))


def _private(path: str, flags: int) -> int:
    import os

    return os.open(path, flags, 0o600)


def collect(bundle: Bundle, get: Get, explain_path: Callable[[str, str], str]) -> Iterator[str]:
    """Asks for every part, and yields its file's name before. `explain_path` returns the path that explains a
    subscription of a topic.
    """
    subscriptions: Any = None
    for name, path in PARTS:
        yield name
        subscriptions = bundle.ask(get, name, path)
    rows = [] if subscriptions is None else subscriptions["rows"]
    for number, row in enumerate([row for row in rows if row["msgBacklog"]][:EXPLAINED_MAX], 1):
        name = f"explain/subscription-{number:02}.json"
        yield name
        bundle.ask(get, name, explain_path(row["topic"], row["subscription"]))

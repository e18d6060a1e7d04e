"""Host checks of `magnetar doctor`."""

from __future__ import annotations

import errno
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from magnetar.cli.doctor.findings import Finding, graded
from magnetar.cli.doctor.probes import Probes
from magnetar.cli.quantity_text import ms_text, size_text

GIB: Final = 1 << 30
SYNCS: Final = 50
LIBRARIES: Final = ("uvloop", "protobuf", "crc32c", "mmh3", "pyroaring", "grpcio", "aiohttp")
_IMPORTED_AS: Final = {"protobuf": "google.protobuf", "grpcio": "grpc"}
_NOT_DISKS: Final = ("tmpfs", "ramfs")
_NETWORKED: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
_CLOCKS: Final = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen")


def host_findings(probes: Probes, data_dir: Path, ports: Sequence[int]) -> Iterator[Finding]:
    """Run all host checks."""
    yield from _software(probes)
    yield _processors(probes)
    yield _memory(probes)
    yield graded(
        "file limit",
        probes.file_limit(),
        65_535,
        1_024,
        f"{min(probes.file_limit(), 1 << 31):,} open files",
        "each connection takes one: `ulimit -n 65536`, or LimitNOFILE=65536 in the service's unit",
        higher=True,
    )
    yield from _kernel(probes)
    yield from _disk(probes, data_dir)
    for port in ports:
        yield _port(probes, port)


def _software(probes: Probes) -> Iterator[Finding]:
    found = platform.python_version()
    if platform.python_implementation() != "CPython":
        kind = platform.python_implementation()
        yield Finding(
            "python", "warning", f"{kind} {found}", "Magnetar is tested with CPython 3.11 and newer"
        )
    else:
        yield Finding("python", "ok", found)
    versions = {name: probes.installed(_IMPORTED_AS.get(name, name), name) for name in LIBRARIES}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        yield Finding(
            "libraries",
            "failure",
            f"{', '.join(missing)} cannot be imported",
            f"pip install --force-reinstall {' '.join(missing)}; in a clone: make distclean setup",
        )
        return
    if (kind := probes.protobuf_kind()) != "upb":
        yield Finding(
            "libraries",
            "warning",
            f"protobuf runs as {kind}, ten times slower than compiled",
            "install the wheel of protobuf for this platform; unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
        )
        return
    yield Finding("libraries", "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _processors(probes: Probes) -> Finding:
    count = probes.processors()
    text = f"{count} for this process"
    return graded("processors", count, 1, 0, text, "a broker wants one, storage another", higher=True)


def _memory(probes: Probes) -> Finding:
    found = probes.memory()
    if found is None:
        return Finding("memory", "skipped", "unknown on this host")
    available, total = found
    return graded(
        "memory",
        available,
        GIB,
        GIB // 4,
        f"{size_text(available)} available of {size_text(total)}",
        "stop other processes, give the container more memory, or lower managedLedgerCacheSizeMB",
        higher=True,
    )


def _kernel(probes: Probes) -> Iterator[Finding]:
    backlog = probes.text("/proc/sys/net/core/somaxconn")
    if backlog is not None and backlog.strip().isdigit():
        yield graded(
            "net.core.somaxconn",
            int(backlog),
            1_023,
            0,
            backlog.strip(),
            "many simultaneous connections would be refused: sysctl -w net.core.somaxconn=4096",
            higher=True,
        )
    swappiness = probes.text("/proc/sys/vm/swappiness")
    swaps = len((probes.text("/proc/swaps") or "").splitlines()) > 1
    if swaps and swappiness is not None and swappiness.strip().isdigit():
        yield graded(
            "vm.swappiness",
            int(swappiness),
            11,
            1_000,
            swappiness.strip(),
            "a swapped-out broker stalls: sysctl -w vm.swappiness=1",
        )
    pages = re.search(r"\[(\w+)\]", probes.text("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    if pages is not None:
        found = pages[1]
        what_next = (
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: saves memory and avoids stalls"
        )
        bad = found == "always"
        yield Finding("transparent huge pages", "warning" if bad else "ok", found, what_next if bad else "")
    clock = probes.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if clock is not None:
        name = clock.strip()
        good = name in _CLOCKS
        what_next = "reading the clock is slow with this source: use tsc (kernel parameter clocksource=tsc)"
        yield Finding("clock source", "ok" if good else "warning", name, "" if good else what_next)


def _disk(probes: Probes, data_dir: Path) -> Iterator[Finding]:
    directory = data_dir.absolute()
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    syncs: list[float] = []
    try:
        free, total = probes.space(directory)
        syncs = sorted(probes.sync_seconds(directory, SYNCS))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            what_next = "grant write permission to the user that runs Magnetar, or set another --data-dir"
            yield Finding("data directory", "failure", f"{directory}: {error.strerror or error}", what_next)
            return
    kind = probes.file_system(directory)
    if kind in _NOT_DISKS:
        what_next = "all data is lost when the host restarts: use a directory on a disk"
        yield Finding("data directory", "failure", f"{directory} is in memory ({kind})", what_next)
    elif kind in _NETWORKED:
        what_next = "syncs over a network are slow and not always durable: use a local disk"
        yield Finding("data directory", "warning", f"{directory} is on {kind}", what_next)
    else:
        yield Finding("data directory", "ok", f"{directory} ({kind or 'unknown file system'})")
    yield graded(
        "free space",
        free / total if total else 0.0,
        0.15,
        0.05,
        f"{size_text(free)} of {size_text(total)}",
        "delete unneeded data, shorten retention, or use a larger disk: at 95 % a bookie refuses new entries",
        higher=True,
    )
    if not syncs:
        yield Finding("disk sync", "skipped", "nothing can be written: the disk is full")
        return
    middle, high = syncs[len(syncs) // 2], syncs[-max(len(syncs) // 50, 1)]
    yield graded(
        "disk sync",
        high,
        0.020,
        0.200,
        f"half within {ms_text(middle)}, slowest {ms_text(high)}",
        "every publish waits for a sync: use a dedicated SSD with power-loss protection",
    )


def _port(probes: Probes, port: int) -> Finding:
    check = f"port {port}"
    if probes.port_is_free(port):
        return Finding(check, "ok", "free")
    if protocol := probes.server_at(port):
        return Finding(check, "ok", f"in use by a server that speaks {protocol}")
    return Finding(
        check,
        "failure",
        "in use by another process, which speaks no protocol of Magnetar",
        f"find the process with `ss -ltnp 'sport = :{port}'`, or choose another port with --set",
    )

"""What a Docker daemon changes on a machine, and how that is put back when the daemon has ended.

Docker takes nothing back itself: its bridges, its chains of iptables, forwarding switched on and, with that,
everything dropped that is forwarded for anybody else, which is what bridges between network namespaces need.
And a daemon that was killed leaves containers that run on, their shims, and mounts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tools.deploy_setup import program

END_SECONDS_MAX: Final = 10.0
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_BRIDGE: Final = re.compile(r"docker0|br-[0-9a-f]{12}")
_CHAIN: Final = re.compile(r"DOCKER[-A-Z0-9]*")
_RULE: Final = re.compile(
    r"\b(docker0|br-[0-9a-f]{12}|DOCKER[-A-Z0-9]*)\b"
    r"|-s (\S+) -d \2 .*-j MASQUERADE"  # of a container that has a port published, to itself
)
_FAMILIES: Final = ("iptables", "ip6tables")


@dataclass(frozen=True, slots=True)
class Machine:
    """What Docker changes of one."""

    boot: str
    forwarding: str
    bridges: list[str]
    rules: dict[str, list[str]]
    """What `iptables-save` says, by family."""
    mounts: list[str]

    @staticmethod
    def now() -> Machine:
        """This one, as it is."""
        boot, forwarding = _BOOT.read_text().strip(), _FORWARDING.read_text().strip()
        return Machine(boot, forwarding, _bridges(), _rules(), mounts(_MOUNTS.read_text()))

    @staticmethod
    def read(file: Path) -> Machine | None:
        """What was written there since this machine was started; None if nothing was."""
        try:
            found = Machine(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.boot == _BOOT.read_text().strip() else None

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))


def _bridges() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex() if _BRIDGE.fullmatch(name))


def _rules() -> dict[str, list[str]]:
    found = {}
    for family in _FAMILIES:
        if saves := program(f"{family}-save"):
            said = subprocess.run(
                [str(saves)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            found[family] = [line for line in said.stdout.splitlines() if line and not line.startswith("#")]
    return found


def put_policy_back(before: Machine) -> None:
    """What is forwarded is let through, or not, as before the daemon was started."""
    now = Machine.now()
    for family, rules in before.rules.items():
        # A table that was not there lets everything through: Linux makes it so when it is first asked for.
        was, is_now = policy(rules) or "ACCEPT", policy(now.rules.get(family, ()))
        if is_now and was != is_now:
            _run(family, "--wait", "--policy", "FORWARD", was)


def put_network_back(before: Machine) -> None:
    """Remove the rules, chains and bridges that were not there, unless another daemon uses them by now."""
    if _another_daemon_runs():
        return
    put_policy_back(before)
    now = Machine.now()
    for family, rules in now.rules.items():
        if undo := undone(before.rules.get(family, []), rules):
            _run(f"{family}-restore", "--noflush", "--wait", told="\n".join([*undo, ""]))
    for name in sorted({*now.bridges} - {*before.bridges}):
        _run("ip", "link", "delete", name)
    if now.forwarding != before.forwarding:
        _FORWARDING.write_text(before.forwarding)


def policy(rules: Sequence[str]) -> str:
    """What becomes of what is forwarded and that no rule names; empty where nothing is known."""
    table = ""
    for line in rules:
        if line.startswith("*"):
            table = line[1:]
        elif table == "filter" and line.startswith(":FORWARD "):
            return line.split()[1]
    return ""


def undone(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """What iptables-restore has to be told for Docker's rules and chains to go that were not there before."""
    known = {*_by_table(before)}
    lines: list[str] = []
    for table in dict.fromkeys(table for table, _ in _by_table(now)):
        new = [line for where, line in _by_table(now) if where == table and (where, line) not in known]
        there = {line.split()[0][1:] for where, line in known if where == table and line.startswith(":")}
        chains = [line.split()[0][1:] for line in new if line.startswith(":")]
        chains = [name for name in chains if _CHAIN.fullmatch(name) and name not in there]
        rules = [line for line in new if line.startswith("-A ") and _RULE.search(line)]
        rules = [line for line in rules if line.split()[1] not in chains]
        if chains or rules:
            lines += [f"*{table}", *(f"-F {name}" for name in chains)]
            lines += [f"-D {line.removeprefix('-A ')}" for line in rules]
            lines += [*(f"-X {name}" for name in chains), "COMMIT"]
    return lines


def _by_table(rules: Sequence[str]) -> Iterator[tuple[str, str]]:
    table = ""
    for line in rules:
        if line.startswith("*"):
            table = line[1:]
        elif line != "COMMIT":
            yield table, re.sub(r" \[\d+:\d+\]$", "", line)


def _another_daemon_runs() -> bool:
    """On this network: of what it has made nothing may be removed."""
    mine = os.readlink("/proc/self/ns/net")
    for process in _processes():
        with contextlib.suppress(OSError):
            if (process / "comm").read_text() == "dockerd\n" and os.readlink(process / "ns/net") == mine:
                return True
    return False


def end_processes(directory: Path) -> None:
    """End containerd and its shims of the daemon whose files are in a directory, and all containers."""
    for shim in _of(directory):
        for number in (*_children(shim), shim):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS_MAX
    while _of(directory) and time.monotonic() < deadline:
        time.sleep(0.05)


def _of(directory: Path) -> list[int]:
    """Processes with an argument that is a file below a directory, but dockerd itself and this one."""
    found = []
    for process in _processes():
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            below = any(each.startswith(f"{directory}/".encode()) for each in arguments)
            if below and (process / "comm").read_text().startswith("containerd"):
                found.append(int(process.name))
    return found


def _children(pid: int) -> list[int]:
    found = []
    for process in _processes():
        with contextlib.suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(process.name))
    return found


def _processes() -> Iterator[Path]:
    return (each for each in Path("/proc").iterdir() if each.name.isdecimal())


def unmount_below(*directories: Path, keep: Sequence[str]) -> None:
    """Unmount whatever is mounted at directories or below, even where somebody is in it, but for some."""
    for point in reversed(mounts(_MOUNTS.read_text())):
        if point not in keep and any(Path(point).is_relative_to(directory) for directory in directories):
            _run("umount", "--lazy", point)


def mounts(mountinfo: str) -> list[str]:
    """Where something is mounted, the first mount first."""
    escaped = (line.split()[4] for line in mountinfo.splitlines())
    return [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), each) for each in escaped]


def remove_files(directory: Path) -> None:
    """What a daemon has in its directory for as long as it runs."""
    shutil.rmtree(directory, ignore_errors=True)


def _run(name: str, *arguments: str, told: str | None = None) -> None:
    found = program(name)
    if found is None:
        print(f"docker daemon: there is no {name}, so this is left: {' '.join(arguments)}", flush=True)
        return
    done = subprocess.run(
        [str(found), *arguments], input=told or "", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"docker daemon: {name} {' '.join(arguments)}: {done.stderr.strip()}", flush=True)

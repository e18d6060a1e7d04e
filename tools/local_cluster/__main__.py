"""`make cluster`: a whole cluster as processes of this machine, to try things with and to test against.

etcd, bookies, brokers, discoveries and a console start with one command on loopback; Ctrl-C stops them.
Not for production: all data is on one disk.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.cluster_context import write_context
from tools.local_cluster.etcd_program import find_etcd
from tools.local_cluster.plan import KINDS, Options, make_plan
from tools.local_cluster.screen import Screen
from tools.local_cluster.supervisor import CannotStart, Supervisor

MEMBERS_MAX: Final = 50
SAME_REQUEST_S: Final = 1.0
"""A signal so soon after the first is that one again: make and its terminal both send it."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='make cluster ARGS="..."',
        description="etcd, bookies, brokers, discoveries and a console as processes of this machine; "
        "Ctrl-C stops them.",
    )
    parser.add_argument("--bookies", type=_at_least_one, default=3, metavar="N", help="how many (default 3)")
    parser.add_argument("--brokers", type=_at_least_one, default=3, metavar="N", help="how many (default 3)")
    parser.add_argument("--discoveries", type=_count, default=2, metavar="N", help="how many (default 2)")
    parser.add_argument("--no-console", action="store_true", help="without the console")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data/cluster"), help="default ./data/cluster", metavar="DIR"
    )
    parser.add_argument(
        "--free-ports", action="store_true", help="any free ports instead of those in docs/cluster.md"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KIND:KEY=VALUE",
        help="a setting of every process of a kind: broker:metadataStoreSessionTimeoutMillis=3000",
    )
    parser.add_argument("--leave-dead", action="store_true", help="do not start again what dies")
    parser.add_argument("--etcd", metavar="PROGRAM", help="the etcd to start, instead of that in .venv")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MEMBERS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to {MEMBERS_MAX}")
    return number


def _at_least_one(text: str) -> int:
    if (number := _count(text)) == 0:
        raise argparse.ArgumentTypeError("there has to be one")
    return number


def settings_by_kind(given: Sequence[str]) -> dict[str, list[str]]:
    """The value of --set. Raises ValueError."""
    found: dict[str, list[str]] = {}
    for text in given:
        kind, separator, setting = text.partition(":")
        if kind not in KINDS[1:] or not separator or "=" not in setting:
            raise ValueError(
                f"--set {text}: write bookie:KEY=VALUE, broker:KEY=VALUE, discovery:KEY=VALUE or "
                "console:KEY=VALUE"
            )
        found.setdefault(kind, []).append(setting)
    return found


@contextmanager
def the_only_one(data_dir: Path) -> Iterator[None]:
    """Holds the directory for this process. Raises ValueError when another has it, or it cannot be made."""
    try:
        (data_dir / "logs").mkdir(parents=True, exist_ok=True)
        lock = os.open(data_dir / "LOCK", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}; choose another with --data-dir") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(lock, 20).decode(errors="replace").strip()
            raise ValueError(
                f"{data_dir} is in use by another `make cluster` (pid {pid}): stop that, or choose another "
                "directory with --data-dir"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


async def run(supervisor: Supervisor, screen: Screen, on_ready: Callable[[], None]) -> int:
    """Start, stay until a signal, stop; a second signal ends everything at once. Returns the exit code."""
    loop = asyncio.get_running_loop()
    asked, at_once = asyncio.Event(), asyncio.Event()
    asked_at = 0.0

    def on_signal() -> None:
        nonlocal asked_at
        if not asked.is_set():
            asked_at = loop.time()
            asked.set()
        elif loop.time() - asked_at >= SAME_REQUEST_S:
            at_once.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)

    async def serve() -> None:
        await supervisor.start()
        on_ready()
        await supervisor.watch()

    serving = loop.create_task(serve())
    code = 0
    try:
        await _first_of(serving, loop.create_task(asked.wait()))
        if serving.done():
            code = 1  # Nothing is left to watch, or it did not start.
            serving.result()
        else:
            screen.say("stopping; again ends it at once")
    except CannotStart:
        screen.say("the cluster cannot start: see above")
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        clean = loop.create_task(supervisor.stop())
        await _first_of(clean, loop.create_task(at_once.wait()))
        if not clean.done():
            screen.say("ending everything at once")
            code = 1
            clean.cancel()
        await supervisor.kill()
    return code


async def _first_of(wanted: asyncio.Task[None], other: asyncio.Task[bool]) -> None:
    """Return once one of them is done; `other` is not waited for any more then."""
    await asyncio.wait({wanted, other}, return_when=asyncio.FIRST_COMPLETED)
    other.cancel()


def main(argv: Sequence[str]) -> int:
    options = arguments().parse_args(argv)
    data_dir: Path = options.data_dir.absolute()
    try:
        asked = Options(
            data_dir=data_dir,
            bookies=options.bookies,
            brokers=options.brokers,
            discoveries=options.discoveries,
            console=not options.no_console,
            free_ports=options.free_ports,
            settings=settings_by_kind(options.settings),
        )
        etcd = find_etcd(options.etcd)
        with the_only_one(data_dir):
            plan = make_plan(asked, magnetar=str(Path(sys.executable).parent / "magnetar"), etcd=etcd)
            screen = Screen(sys.stdout)
            for moved in plan.moved:
                screen.say(moved)
            supervisor = Supervisor(plan, screen, start_again=not options.leave_dead)

            def on_ready() -> None:
                hint = write_context("local-cluster", plan.service_url, plan.admin_url)
                screen.overview(plan, supervisor.processes, data_dir, context_hint=hint)

            return asyncio.run(run(supervisor, screen, on_ready))
    except (ValueError, OSError) as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs a service as a process: configuration, signals, the ready line, exit codes.

Exit code 0 after a clean stop, 1 when the start or stop failed, with the reasons on standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import uvloop
from magnetar.common.config.loader import Loaded, load
from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import LogFormat, configure, get_logger
from magnetar.standalone import process
from magnetar.standalone.service import Service, ServiceConfig

_log = get_logger("magnetar.standalone")

C = TypeVar("C", bound=ServiceConfig)

SAME_REQUEST_S = 1.0
"""Seconds within which repeated signals count as one: stopping a process group under `make` signals twice."""

ALLOWED_BY: Final = (
    "brokerShutdownTimeoutMs; of a bookie magnetarBookieShutdownTimeoutMs, of a discovery "
    "magnetarDiscoveryShutdownTimeoutMs"
)
"""Configuration with a stop timeout."""


def run(
    settings_class: type[C],
    make: Callable[[C], Service],
    *,
    files: Sequence[Path],
    overrides: Sequence[str],
    log_format: LogFormat,
    log_level: str,
    log_fields: Mapping[str, object] | None = None,
) -> int:
    """Run the service that `make` creates from the configuration until SIGTERM or SIGINT.

    Returns the exit code. `log_fields` are added to every log line.
    """
    started = time.monotonic() - _age_s()
    configure(log_format, log_level, fields=log_fields)
    try:
        loaded = load(settings_class, files=files, environ=os.environ, overrides=overrides)
        _warn(loaded)
        process.raise_descriptor_limit()
        process.favor_waiting_threads()

        def on_ready(service: Service) -> None:
            _announce(service, time.monotonic() - started)

        uvloop.run(serve(make(loaded.value), on_ready))
    except (MagnetarError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def serve(service: Service, on_ready: Callable[[Service], None]) -> None:
    """Start, call `on_ready`, and stop gracefully at the first signal; a second one ends the process at once.

    Acknowledged messages are always durable, so an immediate end loses none of them.
    """
    stop = asyncio.Event()

    loop = asyncio.get_running_loop()
    asked_at = 0.0

    def on_signal(number: int) -> None:
        nonlocal asked_at
        if not stop.is_set():
            asked_at = loop.time()
            stop.set()
        elif loop.time() - asked_at >= SAME_REQUEST_S:
            _end_now("received a second signal", 128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)

    starting = loop.create_task(service.start(), name="start")
    stopping = loop.create_task(stop.wait(), name="stop")
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        timeout_ms = service.shutdown_timeout_ms
        await asyncio.wait([starting], timeout=timeout_ms / 1000)
        if not starting.done():
            _end_now(f"the interrupted start was not rolled back within {timeout_ms} ms ({ALLOWED_BY})", 1)
        if not starting.cancelled() and (error := starting.exception()) is not None:
            _log.warning("an interrupted start failed", reason=str(error))
        return
    if starting.exception() is not None:
        stopping.cancel()
    starting.result()

    on_ready(service)
    process.freeze_what_is_loaded()
    await stopping
    timeout_ms = service.shutdown_timeout_ms
    _log.info("stopping", timeout_ms=timeout_ms)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await service.close()
    except TimeoutError:
        _end_now(f"the service did not stop within {timeout_ms} ms ({ALLOWED_BY})", 1)
    _log.info("stopped")


def _end_now(reason: str, code: int) -> None:
    _log.error("exiting immediately", reason=reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _warn(loaded: Loaded[C]) -> None:
    if loaded.ignored_keys:
        _log.warning("unused configuration keys", keys=", ".join(loaded.ignored_keys))
    for warning in loaded.value.warnings():
        _log.warning(warning)


def _announce(service: Service, seconds: float) -> None:
    addresses = service.addresses
    if sys.stdout.isatty():
        lines = "".join(
            f"    {each.label:<9} {each.text}   {each.note}".rstrip() + "\n" for each in addresses
        )
        print(f"\n  Magnetar is ready ({seconds:.2f} s)\n\n{lines}\n  Ctrl-C stops it.\n", flush=True)
    else:
        said = " ".join(
            each.text if "://" in each.text else f"{each.label}={each.text}" for each in addresses
        )
        print(f"magnetar ready in {seconds:.3f} s: {said}", flush=True)


def _age_s() -> float:
    """Return the age of this process in seconds, so that the ready line includes imports; 0 if unknown."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii")
        ticks = int(stat.rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, uptime - ticks / os.sysconf("SC_CLK_TCK"))

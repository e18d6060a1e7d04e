"""A way from the tests into a cluster that works for any of them: `kubectl port-forward`, kept up."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from magnetar.testing.free_ports import free_ports

_PAUSE_SECONDS: Final = 0.3
"""Before the next try: the pod behind a service may just be replaced."""


@contextmanager
def forwarded(
    command: Sequence[str], environment: Mapping[str, str], remote: Sequence[int]
) -> Iterator[list[int]]:
    """Yield the local ports that lead to these remote ones for as long as the block runs.

    `command` is kubectl up to the name of a service. kubectl ends with the pod that it has chosen, so it is
    started again until the block ends.
    """
    local = free_ports(len(remote))
    pairs = [f"{here}:{there}" for here, there in zip(local, remote, strict=True)]
    over = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep_up() -> None:
        while not over.is_set():
            with subprocess.Popen(
                [*command, *pairs],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                running[:] = [process]
                if over.is_set():
                    process.terminate()
            over.wait(_PAUSE_SECONDS)

    thread = threading.Thread(target=keep_up, name="kubectl port-forward")
    thread.start()
    try:
        yield local
    finally:
        over.set()
        for process in running:
            process.terminate()
        thread.join()

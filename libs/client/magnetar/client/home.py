"""The event loop and the process that a client belongs to."""

from __future__ import annotations

import asyncio
import os

from magnetar.client.errors import ClientError, Forked, WrongLoop


class Home:
    """The loop and process of a client; every public call checks that it runs there."""

    __slots__ = ("_pid", "loop")

    def __init__(self) -> None:
        """Takes the running loop. Raises WrongLoop where none runs."""
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongLoop("create the client inside a coroutine: no event loop is running here") from None
        self._pid = os.getpid()

    def check(self) -> None:
        """Raises WrongLoop or Forked outside the client's loop."""
        try:
            # The running loop is known by process: in a forked one it is never the client's.
            if asyncio.get_running_loop() is self.loop:
                return
        except RuntimeError:  # No loop runs here.
            pass
        raise self._violation()

    def _violation(self) -> ClientError:
        if os.getpid() != self._pid:
            return Forked(
                f"this client was created in process {self._pid} and is used in its fork {os.getpid()}: "
                "create a client of its own after the fork"
            )
        return WrongLoop(
            "this client belongs to another event loop: use it on the loop on which it was created, or "
            "create a client on this one"
        )

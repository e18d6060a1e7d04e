"""Checks that ports are free before anything else is opened."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from magnetar.standalone.start_error import reason


def port_problems(host: str, ports: Mapping[str, int]) -> list[str]:
    """Return the ports that cannot be bound, as texts with their settings; port 0 always can."""
    problems = []
    for key, port in ports.items():
        if port == 0:
            continue
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            problems.append(
                f"{host}:{port} ({key}): {reason(error)}; "
                f"--set {key}=PORT chooses another port, 0 any free one"
            )
    return problems

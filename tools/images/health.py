"""Whether the service in this container may be sent work: what HEALTHCHECK of its image runs.

Exit code 0 when the page named by HEALTH_URL answers 200, 1 with the reason otherwise. Only sockets: this
runs every few seconds beside the service, and shall take no more than a fiftieth of a second.
"""

from __future__ import annotations

import os
import socket
import sys
from urllib.parse import urlsplit

TIMEOUT_S = 4.0
ANSWER_BYTES_MAX = 4096


def main() -> str | None:
    """The problem, or None."""
    url = urlsplit(os.environ["HEALTH_URL"])
    host, port = url.hostname or "127.0.0.1", url.port or 80
    request = f"GET {url.path or '/'} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(request.encode("ascii"))
            answer = b""
            while len(answer) < ANSWER_BYTES_MAX and (part := connection.recv(ANSWER_BYTES_MAX)):
                answer += part
    except OSError as error:
        return f"{url.geturl()}: {error}"
    status, _, rest = answer.partition(b"\r\n")
    if status.split(b" ")[1:2] == [b"200"]:
        return None
    reason = rest.rpartition(b"\r\n\r\n")[2]
    return f"{url.geturl()}: {(status + b': ' + reason).decode('latin-1').strip()}"


if __name__ == "__main__":
    sys.exit(main())

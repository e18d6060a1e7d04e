"""Waits until a member of etcd reports that it is healthy, so that the cluster has a leader.

    python3 -I wait_for_etcd.py HOST:PORT,HOST:PORT

For init containers; uses only the standard library. Reports every ten seconds what it waits for. It has no
timeout: the pod's own timeouts apply.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import time

PAUSE_S = 0.5
TIMEOUT_S = 3.0
TELL_EVERY_S = 10.0


def why_not(endpoint: str) -> str:
    """The problem of a member; empty when it is healthy."""
    host, _, port = endpoint.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        answer = json.loads(connection.getresponse().read(10_000))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{endpoint}: {error or type(error).__name__}"
    finally:
        connection.close()
    if isinstance(answer, dict) and str(answer.get("health")).lower() == "true":
        return ""
    return f"{endpoint}: {answer}"


def main() -> None:
    # Process 1 of a container: the kernel drops what it does not handle, and a deleted pod would linger.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    endpoints = sys.argv[1].split(",")
    began = time.monotonic()
    tell_at = began + TELL_EVERY_S
    while True:
        reasons = []
        for endpoint in endpoints:
            reason = why_not(endpoint)
            if not reason:
                print(f"etcd answers at {endpoint} after {time.monotonic() - began:.1f} s", flush=True)
                return
            reasons.append(reason)
        if time.monotonic() >= tell_at:
            print(f"etcd does not answer: {'; '.join(reasons)}", flush=True)
            tell_at += TELL_EVERY_S
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()

"""A process that opens many idle connections, so that their descriptors are not the test's own.

    python crowd.py PORT COUNT

Each does Connect and awaits Connected; then `ready COUNT` is printed, pings are answered, and everything ends
with the standard input. Uses nothing of the project, so that it starts quickly.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import sys

CONNECT = b"\x08\x02\x12\x09\x0a\x05crowd\x20\x14"
"""BaseCommand CONNECT: client_version "crowd", protocol_version 20."""
PONG = b"\x08\x13\x9a\x01\x00"
PONG_FRAME = struct.pack(">II", len(PONG) + 4, len(PONG)) + PONG
AT_ONCE = 200


def main() -> None:
    port, count = int(sys.argv[1]), int(sys.argv[2])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    hello = struct.pack(">II", len(CONNECT) + 4, len(CONNECT)) + CONNECT
    selector = selectors.DefaultSelector()
    for start in range(0, count, AT_ONCE):
        fresh = []
        for _ in range(min(AT_ONCE, count - start)):
            one = socket.create_connection(("127.0.0.1", port), timeout=30)
            one.sendall(hello)
            fresh.append(one)
        for one in fresh:
            if not one.recv(4096):
                raise SystemExit(f"connection {start} was closed")
            one.setblocking(False)
            selector.register(one, selectors.EVENT_READ)
    print(f"ready {count}", flush=True)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            assert isinstance(key.fileobj, socket.socket)
            if not key.fileobj.recv(4096):
                print("closed", flush=True)
                return
            key.fileobj.sendall(PONG_FRAME)


main()

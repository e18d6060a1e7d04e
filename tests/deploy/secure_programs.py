"""Programs that tests run in a pod of a secure release, with the files that are mounted there."""

from __future__ import annotations

from typing import Final

HANDSHAKE: Final = """
import socket, ssl, sys
host, port, directory = sys.argv[1:]
context = ssl.create_default_context(cafile="/run/magnetar/services-tls/ca.crt")
context.set_alpn_protocols(["h2"])
if directory:
    context.load_cert_chain(directory + "/tls.crt", directory + "/tls.key")
with socket.create_connection((host, int(port)), 20) as raw:
    with context.wrap_socket(raw, server_hostname=host) as tls:
        tls.settimeout(20)
        certificate = tls.getpeercert()
        tls.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")
        assert tls.recv(9), "closed without an answer"
        print(certificate["serialNumber"])
"""
"""Prints the serial number of the certificate of a gRPC port, once the server has taken the client's.

Arguments: host, port, and the directory of the client's certificate; an empty one shows none.
"""

REFUSED: Final = r"(?i)alert|certificate.required|closed without an answer|connection reset"
"""Ways in which HANDSHAKE fails where the server refuses the client: some close without a reason."""

WRITE_METADATA: Final = """
import asyncio, sys
from pathlib import Path
from magnetar.common.metadata.etcd_access import EtcdAccess
from magnetar.common.metadata.open_store import open_metadata_store
files = Path("/run/magnetar/services-tls")
access = EtcdAccess(
    tls=True, trust_certs=files / "ca.crt", certificate=files / "tls.crt", key=files / "tls.key"
)
async def main():
    store = await open_metadata_store("etcd:https://magnetar-etcd:2379", access)
    try:
        found = await store.children("/magnetar/magnetar/v1/brokers/")
        print(len(found.items), "keys read", flush=True)
        await store.put("/magnetar/magnetar/v1/tenants/intruder", b"")
        print("written")
    finally:
        await store.close()
asyncio.run(main())
"""
"""Reads registrations of brokers and writes a tenant, as the user of the pod's certificate."""

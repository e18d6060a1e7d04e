"""Writes in which rack a bookie is: region and zone of its node, as the API server has them.

    NODE_NAME=... python3 -I rack_of_node.py FILE

For an init container, with nothing but the standard library and the pod's account, which may read nodes. A
node without a zone is a rack of its own. Fails when the API server does not answer or refuses: a bookie that
guessed its rack would have copies placed where they fail together.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from pathlib import Path
from urllib.parse import quote

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
DEFAULT_REGION = "default-region"
TIMEOUT_S = 10.0


def rack(labels: dict[str, str], node: str) -> str:
    """The rack in BookKeeper's form, /region/rack."""
    return f"/{labels.get(REGION) or DEFAULT_REGION}/{labels.get(ZONE) or node}"


def labels_of(node: str) -> dict[str, str]:
    """The labels of a node. Raises OSError with what the API server said."""
    account = Path(os.environ.get("SERVICE_ACCOUNT_DIRECTORY", ACCOUNT))
    connection = http.client.HTTPSConnection(
        os.environ["KUBERNETES_SERVICE_HOST"],
        int(os.environ.get("KUBERNETES_SERVICE_PORT", "443")),
        timeout=TIMEOUT_S,
        context=ssl.create_default_context(cafile=str(account / "ca.crt")),
    )
    token = (account / "token").read_text().strip()
    try:
        connection.request(
            "GET", f"/api/v1/nodes/{quote(node)}", headers={"Authorization": f"Bearer {token}"}
        )
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise OSError(f"the API server answered {answer.status}: {body[:500].decode(errors='replace')}")
    labels: dict[str, str] = json.loads(body)["metadata"].get("labels") or {}
    return labels


def main() -> None:
    node = os.environ["NODE_NAME"]
    try:
        found = rack(labels_of(node), node)
    except OSError as error:
        sys.exit(f"the zone of node {node} is not known: {error}; bookie.rackFrom=node needs no API server")
    Path(sys.argv[1]).write_text(f"magnetarBookieRack={found}\n")
    print(f"{node} is in rack {found}", flush=True)


if __name__ == "__main__":
    main()

"""Makes the secret key of tokens and the tokens of the cluster's own parts, and keeps them as secrets.

    python3 -I make_tokens.py KEY_SECRET TOKENS_SECRET

For the chart's hook: calls `magnetar tokens` for the key and the tokens, and the API server with the pod's
account. Secrets that exist stay as they are. Ends with an error when only one of the two exists.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ROLES = {"admin": "magnetar-admin", "broker": "magnetar-broker", "discovery": "magnetar-discovery-lookups"}
"""The role of each token, by the name of its file."""
TIMEOUT_S = 30.0


def call(method: str, path: str, body: object = None) -> int:
    """The status of a request to the API server; 404 and 409 are answers, other errors are raised."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    request = urllib.request.Request(
        f"https://{server}{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        if error.code in (404, 409):
            return error.code
        raise


def secret(name: str, data: dict[str, bytes], labels: dict[str, str]) -> dict[str, object]:
    """The object; `data` are its files."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def tokens(directory: Path) -> tuple[bytes, dict[str, bytes]]:
    """Make a key, and a token for each role that does not expire."""
    key = directory / "secret.key"
    subprocess.run(["magnetar", "tokens", "create-secret-key", "--output", str(key)], check=True)
    made = {}
    for name, role in ROLES.items():
        command = ["magnetar", "tokens", "create", "--secret-key", f"file:{key}"]
        done = subprocess.run([*command, "--subject", role], check=True, stdout=subprocess.PIPE)
        made[f"{name}.jwt"] = done.stdout.strip()
    return key.read_bytes(), made


def main() -> None:
    key_name, tokens_name = sys.argv[1:3]
    namespace = (ACCOUNT / "namespace").read_text().strip()
    path = f"/api/v1/namespaces/{namespace}/secrets"
    there = [call("GET", f"{path}/{name}") == 200 for name in (key_name, tokens_name)]
    if all(there):
        print(f"{key_name} and {tokens_name} are there: they stay", flush=True)
        return
    if any(there):
        sys.exit(f"only one of {key_name} and {tokens_name} is there: restore the other, or delete both")
    labels = {"app.kubernetes.io/part-of": "magnetar"}
    with tempfile.TemporaryDirectory() as directory:
        key, made = tokens(Path(directory))
    for name, data in ((key_name, {"secret.key": key}), (tokens_name, made)):
        status = call("POST", path, secret(name, data, labels))
        if status != 201:
            sys.exit(f"secret {name} was not created: the API server answered {status}")
        print(f"made {name}", flush=True)


if __name__ == "__main__":
    main()

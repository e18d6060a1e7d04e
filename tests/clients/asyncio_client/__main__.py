"""Program of the project's own client (magnetar-client, asyncio) in the client matrix.

`python -m tests.clients.asyncio_client SERVICE_URL PREFIX KEYS [SCENARIO ...]`, started in the repository's
root by the Python of its virtual environment, in which the workspace's distributions are installed.
"""

from __future__ import annotations

import sys

from tests.clients.asyncio_client import (
    acknowledging,
    consuming,
    disruptive,
    harness,
    producing,
    publishing,
    schemas,
    transactions,
)

if __name__ == "__main__":
    modules = (publishing, producing, consuming, acknowledging, schemas, transactions, disruptive)
    harness.main(dict(harness.scenarios_of(*modules)), sys.argv[1:])

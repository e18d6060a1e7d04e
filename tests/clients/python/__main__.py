"""Program of the Python client (pulsar-client of PyPI, the C++ library inside) in the client matrix.

`python -m tests.clients.python SERVICE_URL PREFIX KEYS [SCENARIO ...]`, started in the repository's root by
the Python of a virtual environment with what one of the requirements files pins. The same source runs with
the newest version and an old one; what the old one lacks is told by its functions' parameters.
"""

from __future__ import annotations

import sys

from tests.clients.python import acknowledging, consuming, disruptive, harness, producing, publishing, schemas

if __name__ == "__main__":
    modules = (publishing, producing, consuming, acknowledging, schemas, disruptive)
    harness.main(dict(harness.scenarios_of(*modules)), sys.argv[1:])

"""Checks everything that `make up` needs of Docker, at once and before any package is installed.

Written for the standard library alone: it runs before .venv has anything.
"""

from __future__ import annotations

import sys

from tools.deploy_setup import compose_command
from tools.images.docker import Docker, DockerUnavailable


def problems() -> list[str]:
    """Return each thing that is missing, with its remedy."""
    found = []
    try:
        Docker()
    except DockerUnavailable as error:
        found.append(str(error))
    if compose_command() is None:
        found.append("neither `docker compose` nor docker-compose is installed")
    return found


def main() -> None:
    found = problems()
    if found:
        sys.exit(
            "\n".join(
                [
                    "compose: this host cannot run the cluster of docker-compose.yml:",
                    *(f"  - {each}" for each in found),
                    "compose: install what is missing (on Debian and Ubuntu, as root: make deploy-setup). "
                    "Without Docker, `make cluster` starts a cluster of processes.",
                ]
            )
        )


if __name__ == "__main__":
    main()

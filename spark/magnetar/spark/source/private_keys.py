"""Private keys on executors: files NAME.pem of a directory, never texts of options, which Spark shows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from magnetar.client.encryption import KeyReader
from magnetar.client.errors import Undecryptable

DIRECTORY_VARIABLE: Final = "MAGNETAR_CRYPTO_KEY_DIR"

_NAME: Final = re.compile(r"[^./\\\0][^/\\\0]{0,199}")
"""Names come with messages, so they must not lead out of the directory."""


def key_directory(option: str | None) -> str:
    """Return the directory of the option, or of the environment of this process; empty: do not decrypt."""
    return os.environ.get(DIRECTORY_VARIABLE, "") if option is None else option


def directory_reader(directory: str) -> KeyReader:
    """A reader of private keys, which raises Undecryptable for a key that is not in the directory."""

    def read(name: str, metadata: Mapping[str, str]) -> bytes | None:
        if _NAME.fullmatch(name) is None:
            raise Undecryptable("the name is not a file name; rename the key pair")
        path = Path(directory) / f"{name}.pem"
        try:
            return path.read_bytes()
        except OSError as error:
            raise Undecryptable(f"{path}: {error.strerror}") from None

    return read

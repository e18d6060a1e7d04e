"""Password files: one `user:hash` a line, with hashes of Apache's MD5 or bcrypt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

BCRYPT: Final = ("$2y$", "$2b$", "$2a$")

BCRYPT_COST_MAX: Final = 16
"""About 4 s of CPU for a check; a higher cost would block all other checks."""

_APR1: Final = re.compile(r"\$apr1\$[./0-9A-Za-z]{1,8}\$[./0-9A-Za-z]{22}")
_BCRYPT: Final = re.compile(r"\$2[yba]\$([0-9]{2})\$[./0-9A-Za-z]{53}")


def parse_htpasswd(content: bytes) -> Mapping[str, str]:
    """Return hashes by user. Raises ValueError that says which line is wrong; no hash is in it."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError("the password file is not UTF-8") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.strip().split(":")
        if len(parts) != 2 or not parts[0].strip():
            raise ValueError(f"line {number} of the password file is not user:hash")
        user, hashed = parts
        if user in found:
            raise ValueError(f"line {number} of the password file repeats the user {user!r}")
        _check(number, user, hashed)
        found[user] = hashed
    if not found:
        raise ValueError("the password file has no users")
    return found


def _check(number: int, user: str, hashed: str) -> None:
    if _APR1.fullmatch(hashed):
        return
    match = _BCRYPT.fullmatch(hashed)
    if match is None:
        raise ValueError(
            f"line {number} of the password file: the hash of {user!r} is neither $apr1$ nor bcrypt; "
            "make it with htpasswd -m or htpasswd -B"
        )
    if not 4 <= int(match[1]) <= BCRYPT_COST_MAX:
        raise ValueError(
            f"line {number} of the password file: the bcrypt cost of {user!r} is {match[1]}; use 4 to "
            f"{BCRYPT_COST_MAX}"
        )

"""Apache's MD5 hash, by hashes that openssl passwd made."""

from __future__ import annotations

import pytest
from magnetar.common.security.authentication.apr1 import apr1


@pytest.mark.parametrize(
    ("password", "salt", "hashed"),
    [
        ("correct-horse", "Zk3mPq7x", "$apr1$Zk3mPq7x$lZzb0lmp.gEn4RfEF9RVe1"),
        ("a", "x", "$apr1$x$16j9.5e7KiXmuYFAYpPJM/"),
        ("a longer password than sixteen bytes", "12345678", "$apr1$12345678$PQySD5yDpsCiEi/y5IcWE1"),
        ("", "ab", "$apr1$ab$S8K6Sgp3W8c9Jb6LxgywZ."),
        ("pässword", "salt", "$apr1$salt$lXWK8dtPPqeBYJfzZ6AjB1"),
    ],
)
def test_hashes_are_those_of_other_programs(password: str, salt: str, hashed: str) -> None:
    assert apr1(password.encode(), salt) == hashed


def test_only_eight_characters_of_the_salt_count() -> None:
    assert apr1(b"x", "12345678") == apr1(b"x", "123456789")

"""Tokens signed with the operator's keys: which are accepted, as which role, and why others are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.security.authentication.config import TokenConfig
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.token import TokenProvider

from tests.unit.common.security.authentication.signing import (
    NOW,
    SECRET,
    Time,
    accepted,
    by_hand,
    ec_key,
    file_of,
    jwk,
    key_set,
    public_der,
    public_pem,
    rsa_key,
    run,
    signed,
    token,
)


def provider(directory: Path, now: Time | None = None, **settings: Any) -> TokenProvider:
    if not settings.keys() & {"secret_key", "public_key", "keys"}:
        settings["secret_key"] = file_of(directory, "secret", SECRET)
    return TokenProvider(TokenConfig(**settings), now or Time())


def refused(asked: TokenProvider, data: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        accepted(asked, token(data))
    return caught.value.reason


def test_the_subject_is_the_role_and_a_token_without_expiry_never_expires(tmp_path: Path) -> None:
    identity = accepted(provider(tmp_path), token(signed({"sub": "alice"})))
    assert (identity.role, identity.method, identity.expires_at) == ("alice", "token", None)
    assert identity.provider == "AuthenticationProviderToken"


def test_expiry_and_validity_are_checked_with_the_allowed_skew(tmp_path: Path) -> None:
    now = Time()
    asked = provider(tmp_path, now, clock_skew_s=5)
    data = signed({"sub": "a", "nbf": NOW, "exp": NOW + 60})
    assert accepted(asked, token(data)).expires_at == NOW + 60
    now.now = NOW - 5
    accepted(asked, token(data))
    now.now = NOW - 6
    assert refused(asked, data) == "not_yet_valid"
    now.now = NOW + 64
    accepted(asked, token(data))
    now.now = NOW + 65
    assert refused(asked, data) == "expired"


def test_an_issue_time_in_the_future_does_not_matter(tmp_path: Path) -> None:
    assert accepted(provider(tmp_path), token(signed({"sub": "a", "iat": NOW + 1_000}))).role == "a"


@pytest.mark.parametrize("value", ["soon", True, [1], None, float("inf"), float("nan")])
def test_times_that_are_no_numbers_are_refused(tmp_path: Path, value: object) -> None:
    assert refused(provider(tmp_path), signed_any({"sub": "a", "exp": value})) == "malformed"


def signed_any(claims: object, header: dict[str, Any] | None = None) -> bytes:
    """Signs what the library would not."""
    import base64
    import hmac

    begin = by_hand({"alg": "HS256"} if header is None else header, claims).rstrip(b".")
    signature = hmac.new(SECRET, begin, "sha256").digest()
    return begin + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


@pytest.mark.parametrize("claims", [["sub"], "sub", 1, None])
def test_claims_that_are_no_object_are_refused(tmp_path: Path, claims: object) -> None:
    assert refused(provider(tmp_path), signed_any(claims)) == "malformed"


@pytest.mark.parametrize("claims", [{}, {"sub": ""}, {"sub": "  "}, {"sub": 7}, {"sub": []}, {"sub": [1]}])
def test_a_token_without_a_role_is_refused(tmp_path: Path, claims: dict[str, Any]) -> None:
    assert refused(provider(tmp_path), signed_any(claims)) == "no_role"


def test_another_claim_can_hold_the_role_and_the_first_text_of_a_list_counts(tmp_path: Path) -> None:
    asked = provider(tmp_path, auth_claim="roles")
    assert accepted(asked, token(signed_any({"roles": [1, "b", "c"]}))).role == "b"
    assert accepted(asked, token(signed({"sub": "x", "roles": "r"}))).role == "r"


def test_the_audience_must_be_named_where_one_is_configured(tmp_path: Path) -> None:
    asked = provider(tmp_path, audience_claim="aud", audience="here")
    accepted(asked, token(signed({"sub": "a", "aud": "here"})))
    accepted(asked, token(signed({"sub": "a", "aud": ["there", "here"]})))
    for claims in ({"sub": "a"}, {"sub": "a", "aud": "there"}, {"sub": "a", "aud": ["heretic"]}):
        assert refused(asked, signed(claims)) == "audience"
    accepted(provider(tmp_path), token(signed({"sub": "a", "aud": "anywhere"})))


def test_unsigned_tampered_and_foreign_tokens_are_refused(tmp_path: Path) -> None:
    asked = provider(tmp_path)
    good = signed({"sub": "a"})
    head, claims, signature = good.split(b".")
    assert refused(asked, by_hand({"alg": "none"}, {"sub": "a"})) == "signature"
    assert refused(asked, by_hand({"alg": "HS256"}, {"sub": "a"})) == "signature"
    assert (
        refused(asked, b".".join((head, by_hand({}, {"sub": "b"}).split(b".")[1], signature))) == "signature"
    )
    assert refused(asked, signed({"sub": "a"}, bytes(32))) == "signature"
    assert refused(asked, b".".join((head, claims))) == "malformed"


def test_a_public_key_is_no_shared_secret(tmp_path: Path) -> None:
    """The classic confusion: the attacker knows the public key and uses it as an HMAC secret."""
    for data in (public_der(rsa_key()), public_pem(rsa_key())):
        asked = provider(tmp_path, public_key=file_of(tmp_path, "public", data))
        import base64
        import hmac

        begin = by_hand({"alg": "HS256"}, {"sub": "admin"}).rstrip(b".")
        signature = base64.urlsafe_b64encode(hmac.new(data, begin, "sha256").digest()).rstrip(b"=")
        assert refused(asked, begin + b"." + signature) == "signature"
        assert accepted(asked, token(signed({"sub": "a"}, rsa_key(), "RS256"))).role == "a"
        assert accepted(asked, token(signed({"sub": "a"}, rsa_key(), "PS384"))).role == "a"


def test_extensions_in_the_header_are_refused(tmp_path: Path) -> None:
    asked = provider(tmp_path)
    assert (
        refused(asked, signed_any({"sub": "a"}, {"alg": "HS256", "crit": ["exp"], "exp": 1})) == "malformed"
    )
    assert refused(asked, signed_any({"sub": "a"}, {"alg": "HS256", "b64": False})) == "malformed"


@pytest.mark.parametrize("data", [b"", b"  ", b"x", b"a.b.c", b"\xff\xfe", b"." * 10, b"a" * 20_000])
def test_what_is_no_token_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refused(provider(tmp_path), data) in ("malformed", "no_credentials")


@given(st.binary(max_size=200), st.binary(max_size=80))
def test_no_bytes_do_anything_but_be_refused(header: bytes, rest: bytes) -> None:
    asked = TokenProvider(TokenConfig(secret_key="data:;base64," + "A" * 44), Time())
    for data in (header, header + b"." + rest, b"eyJhbGciOiJIUzI1NiJ9." + header + b"." + rest):
        with pytest.raises(Refusal):
            accepted(asked, token(data))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
)
def test_claims_of_any_shape_are_accepted_or_refused_in_order(value: object) -> None:
    asked = TokenProvider(
        TokenConfig(secret_key="data:;base64," + "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"), Time()
    )
    for claim in ("sub", "exp", "nbf", "iat", "jti", "aud"):
        try:
            identity = accepted(asked, token(signed_any({"sub": "a", claim: value})))
        except Refusal:
            continue
        assert identity.role.strip()
        assert asked.is_valid(identity)


def test_keys_of_a_set_are_chosen_by_kid_and_the_classic_key_is_for_the_rest(tmp_path: Path) -> None:
    keys = key_set(
        jwk(rsa_key(), "r", alg="RS256"), jwk(ec_key(), "e"), {"kty": "oct", "kid": "s", "k": "A" * 43}
    )
    asked = provider(
        tmp_path,
        keys=file_of(tmp_path, "keys", keys),
        secret_key=file_of(tmp_path, "secret", SECRET),
    )
    assert accepted(asked, token(signed({"sub": "a"}, rsa_key(), "RS256", kid="r"))).role == "a"
    assert accepted(asked, token(signed({"sub": "a"}, ec_key(), "ES256", kid="e"))).role == "a"
    assert accepted(asked, token(signed({"sub": "a"}, bytes(32), kid="s"))).role == "a"
    assert accepted(asked, token(signed({"sub": "a"}, kid="unknown"))).role == "a"
    assert accepted(asked, token(signed({"sub": "a"}))).role == "a"
    assert refused(asked, signed({"sub": "a"}, rsa_key(), "RS512", kid="r")) == "signature"
    assert refused(asked, signed({"sub": "a"}, kid="e")) == "signature"
    alone = provider(tmp_path, keys=file_of(tmp_path, "keys", keys))
    assert refused(alone, signed({"sub": "a"})) == "key"


def test_changed_keys_are_read_again_and_bad_ones_keep_the_last_good_set(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    asked = provider(tmp_path, keys=file_of(tmp_path, "keys", key_set(jwk(rsa_key(), "old"))))
    old = signed({"sub": "a"}, rsa_key(), "RS256", kid="old")
    accepted(asked, token(old))
    write(path, b'{"keys": [')
    assert run(asked.reload()) is False
    accepted(asked, token(old))
    write(path, key_set(jwk(ec_key(), "new")))
    run(asked.reload())
    accepted(asked, token(signed({"sub": "a"}, ec_key(), "ES256", kid="new")))
    assert refused(asked, old) == "key"
    path.unlink()
    run(asked.reload())
    accepted(asked, token(signed({"sub": "a"}, ec_key(), "ES256", kid="new")))


def write(path: Path, content: bytes) -> None:
    """Writes with a time of change that surely differs."""
    path.write_bytes(content)
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + len(content) + 1_000_000))


def test_revoked_tokens_are_refused_also_those_accepted_before(tmp_path: Path) -> None:
    asked = provider(tmp_path, revocations=file_of(tmp_path, "revoked", b"{}"))
    stolen = signed({"sub": "a", "jti": "1", "iat": NOW})
    old, new, ageless = (signed({"sub": "b", **more}) for more in ({"iat": NOW - 9}, {"iat": NOW}, {}))
    identities = [accepted(asked, token(each)) for each in (stolen, old, new, ageless)]
    assert run(asked.reload()) is False
    write(tmp_path / "revoked", json.dumps({"jti": ["1"], "sub": {"b": NOW - 1}}).encode())
    assert run(asked.reload()) is True
    assert [asked.is_valid(each) for each in identities] == [False, False, True, False]
    assert refused(asked, stolen) == "revoked"
    assert refused(asked, old) == "revoked"
    accepted(asked, token(new))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"secret_key": ""}, "all empty"),
        ({"secret_key": "data:;base64,AAAA"}, "tokenSecretKey: a secret of 3 bytes; at least 32"),
        ({"secret_key": "file:///no/such/file"}, "tokenSecretKey: cannot read /no/such/file"),
        ({"secret_key": "not base64!"}, "tokenSecretKey is neither file:PATH"),
        ({"public_key": "data:;base64,AAAA"}, "tokenPublicKey: neither a DER nor a PEM public key"),
        (
            {"public_key": "data:;base64,AAAA", "public_algorithm": "HS256"},
            "tokenPublicAlg: unknown algorithm",
        ),
        ({"audience_claim": "aud"}, "tokenAudienceClaim is set without tokenAudience"),
        ({"keys": "data:;base64,e30="}, 'magnetarTokenKeys: the key set has no list "keys"'),
        ({"revocations": "data:;base64,W10="}, "magnetarTokenRevocations: the revocation list must be"),
    ],
)
def test_unusable_settings_are_named_and_secrets_are_not_shown(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    given: dict[str, Any] = {}
    if not settings.keys() & {"secret_key", "public_key"}:
        given["secret_key"] = file_of(tmp_path, "secret", SECRET)
    with pytest.raises(ValueError, match=said) as caught:
        provider(tmp_path, None, **{**given, **settings})
    assert "not base64!" not in str(caught.value)


def test_a_key_of_another_family_or_too_short_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not of the family EC"):
        provider(tmp_path, public_key=file_of(tmp_path, "p", public_der(rsa_key())), public_algorithm="ES256")
    with pytest.raises(ValueError, match="RSA key of 1024 bits"):
        provider(tmp_path, public_key=file_of(tmp_path, "p", public_der(rsa_key(1024))))
    with pytest.raises(ValueError, match="curve secp256k1 is not supported"):
        provider(
            tmp_path,
            public_key=file_of(tmp_path, "p", public_der(ec_key("SECP256K1"))),
            public_algorithm="ES256",
        )


def test_longer_secrets_accept_more_algorithms_and_every_byte_of_the_file_counts(tmp_path: Path) -> None:
    longer = bytes(48)
    asked = provider(tmp_path, secret_key=file_of(tmp_path, "secret", longer))
    accepted(asked, token(signed({"sub": "a"}, longer, "HS384")))
    assert refused(asked, signed({"sub": "a"}, bytes(64), "HS512")) == "signature"
    newline = SECRET + b"\n"
    asked = provider(tmp_path, secret_key=file_of(tmp_path, "secret", newline))
    accepted(asked, token(signed({"sub": "a"}, newline)))
    assert refused(asked, signed({"sub": "a"}, SECRET)) == "signature"


@pytest.mark.parametrize(
    ("curve", "algorithm"), [("SECP256R1", "ES256"), ("SECP384R1", "ES384"), ("SECP521R1", "ES512")]
)
def test_each_curve_has_its_one_algorithm(tmp_path: Path, curve: str, algorithm: str) -> None:
    asked = provider(
        tmp_path, public_key=file_of(tmp_path, "p", public_pem(ec_key(curve))), public_algorithm="ES512"
    )
    assert accepted(asked, token(signed({"sub": "a"}, ec_key(curve), algorithm))).role == "a"

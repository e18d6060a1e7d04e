"""Settings of authentication. Keys and defaults are Pulsar's unless the name begins with `magnetar`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.common.config.settings import setting

PACKAGE: Final = "org.apache.pulsar.broker.authentication."
"""Package of the class names of Pulsar's providers."""

TLS_PROVIDER: Final = f"{PACKAGE}AuthenticationProviderTls"
"""The provider that takes client certificates for identities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """Signed tokens (AuthenticationProviderToken)."""

    setting_prefix: str = setting(
        "",
        "Prefix of the names of the settings tokenSecretKey to tokenAllowedClockSkewSeconds.",
        key="tokenSettingPrefix",
    )
    secret_key: str = setting(
        "",
        "Shared secret that verifies tokens: file:PATH, data:;base64,TEXT, the path of a file, or base64. "
        "The raw bytes are the key: at least 32, and 48 or 64 for HS384 or HS512. Wins over tokenPublicKey.",
        key="tokenSecretKey",
        secret=True,
    )
    public_key: str = setting(
        "",
        "Public key that verifies tokens, given in the same forms: RSA of at least 2048 bits, or EC, as DER "
        "or PEM.",
        key="tokenPublicKey",
        secret=True,
    )
    public_algorithm: str = setting(
        "RS256",
        "Algorithm of tokenPublicKey; only its family counts (RSA or EC).",
        key="tokenPublicAlg",
    )
    auth_claim: str = setting(
        "sub", "Claim of a token that holds the role; of a list the first text counts.", key="tokenAuthClaim"
    )
    audience_claim: str = setting(
        "",
        "Claim of a token that must name tokenAudience; empty: not checked.",
        key="tokenAudienceClaim",
    )
    audience: str = setting("", "Audience that tokens must name.", key="tokenAudience")
    clock_skew_s: int = setting(
        0,
        "Seconds for which an expired token, or one that is not yet valid, is accepted.",
        key="tokenAllowedClockSkewSeconds",
        minimum=0,
    )
    keys: str = setting(
        "",
        "Further keys as a JSON Web Key Set, in the same forms; the kid of a token chooses its key. Read "
        "again when the file changes.",
        key="magnetarTokenKeys",
        secret=True,
    )
    revocations: str = setting(
        "",
        'File of revoked tokens, file:PATH: JSON with "jti" (a list of token ids) and "sub" (subjects with '
        "the time before which their tokens are revoked). Read again when it changes.",
        key="magnetarTokenRevocations",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdConfig:
    """Tokens of OpenID issuers (AuthenticationProviderOpenID)."""

    issuers: tuple[str, ...] = setting(
        (), "Issuers whose tokens are accepted: exact values of iss.", key="openIDAllowedTokenIssuers"
    )
    audiences: tuple[str, ...] = setting(
        (), "Audiences, one of which a token must name.", key="openIDAllowedAudiences"
    )
    role_claim: str = setting("sub", "Claim that holds the role.", key="openIDRoleClaim")
    leeway_s: int = setting(
        0,
        "Seconds for which an expired token, or one that is not yet valid, is accepted.",
        key="openIDAcceptedTimeLeewaySeconds",
        minimum=0,
    )
    trust_certs: str = setting(
        "",
        "Certificates (PEM) that verify issuers; empty: those of the system.",
        key="openIDTokenIssuerTrustCertsFilePath",
    )
    require_https: bool = setting(
        True, "Issuers and their keys are asked with https only.", key="openIDRequireIssuersUseHttps"
    )
    cache_size: int = setting(5, "Issuers whose keys are kept.", key="openIDCacheSize", minimum=1)
    refresh_s: int = setting(
        64_800,
        "Seconds after which an issuer's keys are fetched again in the background.",
        key="openIDCacheRefreshAfterWriteSeconds",
        minimum=1,
    )
    expiration_s: int = setting(
        86_400,
        "Seconds after which a token waits for the issuer's keys to be fetched again.",
        key="openIDCacheExpirationSeconds",
        minimum=1,
    )
    key_miss_refresh_s: int = setting(
        300,
        "Seconds between two fetches because of unknown key ids.",
        key="openIDKeyIdCacheMissRefreshSeconds",
        minimum=0,
    )
    connect_timeout_ms: int = setting(
        10_000,
        "Milliseconds to connect to an issuer.",
        key="openIDHttpConnectionTimeoutMillis",
        minimum=1,
    )
    read_timeout_ms: int = setting(
        10_000, "Milliseconds to wait for an issuer's answer.", key="openIDHttpReadTimeoutMillis", minimum=1
    )
    fallback_discovery_mode: str = setting(
        "DISABLED",
        "Discovery through the Kubernetes API server, which is not supported: only DISABLED.",
        key="openIDFallbackDiscoveryMode",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfig:
    """Authentication of clients."""

    enabled: bool = setting(
        False, "Clients must authenticate, over the binary protocol and HTTP.", key="authenticationEnabled"
    )
    providers: tuple[str, ...] = setting(
        (),
        "Providers, by Pulsar's class names and in the order in which they are asked: "
        "org.apache.pulsar.broker.authentication.AuthenticationProviderTls, ...AuthenticationProviderToken, "
        "...AuthenticationProviderBasic, ...oidc.AuthenticationProviderOpenID.",
        key="authenticationProviders",
    )
    anonymous_role: str = setting(
        "",
        "Role of clients without credentials, and of those that name a method without a provider; empty: "
        "they are refused.",
        key="anonymousUserRole",
    )
    original_auth_data: bool = setting(
        False,
        "The credentials that a proxy forwards are checked; otherwise the role that it names is believed.",
        key="authenticateOriginalAuthData",
    )
    metrics_endpoint: bool = setting(
        False, "The metrics page needs authentication too.", key="authenticateMetricsEndpoint"
    )
    refresh_check_s: int = setting(
        60,
        "Seconds between two checks whether the credential of a connection has expired.",
        key="authenticationRefreshCheckSeconds",
        minimum=1,
    )
    tls_connection_max_age_s: int = setting(
        0,
        "Seconds after which a connection with a client certificate is closed, so that the client "
        "reconnects with its current certificate; 0 is no limit. The certificate's expiry always counts.",
        key="magnetarTlsConnectionMaxAgeSeconds",
        minimum=0,
    )
    basic_conf: str = setting(
        "",
        "Password file of AuthenticationProviderBasic with a line user:hash each ($apr1$ or bcrypt): a path, "
        "file:PATH, data:;base64,TEXT or base64. Read again when it changes.",
        key="basicAuthConf",
        secret=True,
    )
    files_check_s: int = setting(
        5,
        "Seconds between two checks whether key files, password files and revocation lists have changed.",
        key="magnetarAuthenticationFilesCheckSeconds",
        minimum=1,
    )
    connect_timeout_ms: int = setting(
        10_000,
        "Milliseconds that a connection may take to authenticate (with authenticationEnabled).",
        key="magnetarConnectTimeoutMs",
        minimum=1,
    )
    unauthenticated_connections_max: int = setting(
        1_000,
        "Connections that have not authenticated yet, at once; more are closed (with authenticationEnabled). "
        "0 is no limit.",
        key="magnetarMaxUnauthenticatedConnections",
        minimum=0,
    )
    unauthenticated_connections_per_ip_max: int = setting(
        64,
        "The same for one client address.",
        key="magnetarMaxUnauthenticatedConnectionsPerIp",
        minimum=0,
    )
    token: TokenConfig = field(default_factory=TokenConfig)
    openid: OpenIdConfig = field(default_factory=OpenIdConfig)

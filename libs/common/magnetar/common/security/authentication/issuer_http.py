"""Documents of OpenID issuers over HTTP, bounded in size, time and redirects."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from magnetar.common.security.authentication.config import OpenIdConfig

if TYPE_CHECKING:
    import aiohttp

DOCUMENT_BYTES_MAX: Final = 1 << 20

REDIRECTS_MAX: Final = 3


class IssuerHttp:
    """Gets documents; opens connections with the first one."""

    def __init__(self, config: OpenIdConfig) -> None:
        """Raises ValueError when the trusted certificates cannot be read."""
        self._config = config
        self._tls: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None
        if config.trust_certs:
            try:
                self._tls = ssl.create_default_context(cafile=config.trust_certs)
            except OSError as error:
                raise ValueError(
                    f"openIDTokenIssuerTrustCertsFilePath: cannot read {config.trust_certs}: {error}"
                ) from error

    async def fetch(self, url: str) -> bytes:
        """Return the document. Raises OSError or ValueError."""
        import aiohttp

        at = url
        for _ in range(REDIRECTS_MAX + 1):
            try:
                async with self._opened().get(at, allow_redirects=False) as response:
                    if response.status not in (301, 302, 303, 307, 308):
                        if response.status != 200:
                            raise ValueError(f"{_origin(at)} answered with status {response.status}")
                        return await _bounded(response)
                    to = urljoin(at, response.headers.get("Location", ""))
            except (aiohttp.ClientError, TimeoutError) as error:
                raise OSError(f"{_origin(at)} cannot be reached: {type(error).__name__}: {error}") from error
            if _origin(to) != _origin(at):
                raise ValueError(f"{_origin(at)} redirects to another host")
            at = to
        raise ValueError(f"{_origin(at)} redirects more than {REDIRECTS_MAX} times")

    async def close(self) -> None:
        """Close connections; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            config = self._config
            timeout = aiohttp.ClientTimeout(
                total=(config.connect_timeout_ms + config.read_timeout_ms) / 1000,
                sock_connect=config.connect_timeout_ms / 1000,
                sock_read=config.read_timeout_ms / 1000,
            )
            tls = self._tls if self._tls is not None else True
            self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls))
        return self._session


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    content = b""
    async for part in response.content.iter_chunked(64 * 1024):
        content += part
        if len(content) > DOCUMENT_BYTES_MAX:
            raise ValueError(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
    return content


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"

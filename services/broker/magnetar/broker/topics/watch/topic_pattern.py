"""A client's regular expression for topics, matched by the broker in time linear in the name.

RE2 runs it: no pattern makes it backtrack, and its memory is bounded. The expression is matched against the
whole name without its domain, and against the partitioned topic's name for a partition, as Pulsar does.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.common.errors import InvalidPattern
from magnetar.common.naming.topic_name import DOMAINS, PERSISTENT, TopicName

MEMORY_BYTES_MAX: Final = 1 << 20
"""Memory limit of one compiled pattern; RE2 refuses larger ones."""

_DOMAIN_SEPARATOR: Final = "://"


class TopicPattern:
    """A pattern that selects topics. `domain` is the one in its text, or persistent."""

    __slots__ = ("_matches", "domain", "text")

    def __init__(self, text: str) -> None:
        """Compiles a pattern. Raises InvalidPattern."""
        self.text = text
        prefix, domain, rest = _split(text)
        self.domain = domain or PERSISTENT
        self._matches = linear_pattern(prefix + rest, f"topics pattern {text!r}").fullmatch

    def matches(self, name: TopicName) -> bool:
        """Whether the topic's name matches, without its domain."""
        return self._matches(f"{name.namespace}/{name.base_local_name}") is not None


def pattern_length(text: str) -> int:
    """Number of characters of the pattern without its domain. Raises NotAllowed for an invalid domain before
    '://'.
    """
    before, _, rest = _split(text)
    return len(before) + len(rest)


def linear_pattern(text: str, what: str) -> Any:
    """Compiles a client's regular expression with RE2. Raises InvalidPattern, naming it as `what`."""
    import re2  # a megabyte and a half that most brokers do not need

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise InvalidPattern(f"{what} is not a valid regular expression: {reason}") from error


def _split(text: str) -> tuple[str, str, str]:
    """Splits a pattern into (text before the domain, the domain or "", the rest); the domain is not
    matched.
    """
    before, separator, rest = text.partition(_DOMAIN_SEPARATOR)
    if not separator:
        return "", "", text
    for domain in sorted(DOMAINS, key=len, reverse=True):
        if before.endswith(domain):
            return before.removesuffix(domain), domain, rest
    raise InvalidPattern(
        f"topics pattern {text!r} has an invalid domain before '://'; use one of {', '.join(DOMAINS)}"
    )

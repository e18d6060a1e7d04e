"""The generated reference says what the loader does."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.config.reference import reference
from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """What is inside.

    More about it.
    """

    ratio: float = setting(0.5, "A ratio.", key="ratio", minimum=0, maximum=1)
    kinds: tuple[str, ...] = setting((), "Kinds | of things.", key="kinds", choices=("a", "b"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """What is outside."""

    on: bool = setting(True, "Whether.", key="on")
    inner: Inner = field(default_factory=Inner)
    bytes_max: int | None = setting(None, "Bytes.", key="bytesMax", minimum=1)


def test_one_table_for_each_concept() -> None:
    assert reference(Outer) == (
        "### What is outside\n\n"
        "| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
        "| `on` | boolean | `true` | Whether. |\n"
        "| `bytesMax` | integer ≥ 1 or empty | empty | Bytes. |\n"
        "\n### What is inside\n\n"
        "| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
        "| `ratio` | number 0 to 1 | `0.5` | A ratio. |\n"
        "| `kinds` | list of a, b | empty | Kinds \\| of things. |\n"
    )


def test_settings_that_the_base_has_alike_are_left_out() -> None:
    text = reference(Outer, Inner)
    assert "`on`" in text
    assert "`ratio`" not in text
    assert "What is inside" not in text

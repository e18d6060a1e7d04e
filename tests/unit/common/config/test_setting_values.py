"""What may be a setting, and that a value shown reads back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.config.setting_values import Setting, read_value, settings_of, show_value
from magnetar.common.config.settings import SettingInfo, setting

words = st.text(st.characters(exclude_characters=",", exclude_categories=["C", "Z"]), min_size=1)
values = (
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
    | st.lists(words, min_size=1).map(tuple)
)


@given(values)
def test_a_value_shown_reads_back(value: Any) -> None:
    one = Setting(SettingInfo("key", "doc"), type(value), False, None, object)
    assert read_value(one, f" {show_value(value)} ") == value


def test_a_field_that_is_no_setting_is_a_bug() -> None:
    @dataclass
    class Plain:
        port: int = 1

    with pytest.raises(AssertionError, match=r"Plain\.port is neither nested nor a setting"):
        settings_of(Plain)


@dataclass(frozen=True)
class Unions:
    port: int | str = setting(1, "Port.", key="port")


@dataclass(frozen=True)
class Complex:
    impedance: complex = setting(None, "Impedance.", key="impedance")


@pytest.mark.parametrize("cls", [Unions, Complex])
def test_a_type_that_cannot_be_read_is_a_bug(cls: type) -> None:
    with pytest.raises(AssertionError, match="is not a type of settings"):
        settings_of(cls)

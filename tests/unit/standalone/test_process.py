"""Process settings, each undone after its test."""

from __future__ import annotations

import ctypes
import gc
import importlib
import resource
import sys
import weakref

import pytest
from magnetar.standalone import process


def test_the_descriptor_limit_is_raised_to_what_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        process.raise_descriptor_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_waiting_thread_gets_the_interpreter_soon() -> None:
    before = sys.getswitchinterval()
    system = ctypes.CDLL(None)
    get_slack, set_slack = 30, 29  # PR_GET_TIMERSLACK, PR_SET_TIMERSLACK
    slack_before = system.prctl(get_slack, 0, 0, 0, 0) if sys.platform == "linux" else None
    try:
        process.favor_waiting_threads()
        assert sys.getswitchinterval() == pytest.approx(process.SWITCH_INTERVAL_S)
        if slack_before is not None:
            assert system.prctl(get_slack, 0, 0, 0, 0) == 1, "or the system adds 50 us to each interval"
    finally:
        sys.setswitchinterval(before)
        if slack_before is not None:
            system.prctl(set_slack, slack_before, 0, 0, 0)


def test_loaded_objects_are_frozen_and_collections_are_rare() -> None:
    before = gc.get_threshold()
    try:
        process.freeze_what_is_loaded()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == process.GC_THRESHOLD
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_nothing_is_collected_while_modules_load_and_they_are_frozen_then() -> None:
    try:
        with process.loading():
            assert not gc.isenabled()
        assert gc.isenabled()
        with pytest.raises(ModuleNotFoundError), process.loading():
            importlib.import_module("magnetar.missing")
        assert gc.isenabled()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.enable()
        gc.unfreeze()


def test_what_loading_left_behind_is_collected_after_the_start() -> None:
    class Cycle:
        """Garbage that refers to itself."""

        def __init__(self) -> None:
            self.itself = self

    before = gc.get_threshold()
    try:
        with process.loading():
            garbage = weakref.ref(Cycle())
        gc.collect()
        assert garbage() is not None, "frozen"
        process.freeze_what_is_loaded()
        assert garbage() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_modules_loaded_later_are_frozen_where_those_of_the_start_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    process.freeze_what_was_loaded_later()
    assert frozen == []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    process.freeze_what_was_loaded_later()
    assert frozen == [True]

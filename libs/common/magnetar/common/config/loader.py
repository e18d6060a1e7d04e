"""Configuration loading: default < files < environment < overrides, merged key by key.

Keys are Pulsar's names. Files are Java properties, as in Pulsar. An environment variable is `MAGNETAR_`
followed by the key; case and underscores are ignored. An empty value leaves the key unset, as in Pulsar; for
an optional setting it means None. All problems are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from magnetar.common.config.pulsar_keys import is_pulsar_key, pulsar_keys, refused_switches
from magnetar.common.config.setting_values import (
    Setting,
    build,
    hidden,
    read_value,
    settings_of,
    show_setting,
)
from magnetar.common.errors import ConfigError

C = TypeVar("C")

ENVIRONMENT_PREFIX: Final = "MAGNETAR_"

OF_COMMANDS: Final = frozenset(
    {
        "MAGNETAR_ADMIN_URL",
        "MAGNETAR_CLIENT_CONF",
        "MAGNETAR_OFFLOAD_CERTIFICATE",
        "MAGNETAR_OFFLOAD_KEY",
        "MAGNETAR_OFFLOAD_SERVER_NAME",
        "MAGNETAR_OFFLOAD_SERVICE",
        "MAGNETAR_OFFLOAD_TRUST_CERTS",
        "MAGNETAR_PROFILE",
        "MAGNETAR_SERVICE_URL",
        "MAGNETAR_SPEEDUPS",
        "MAGNETAR_TOKEN",
    }
)
"""Environment variables of commands, and of what starts a server; settings are none of them."""
DEFAULT_ORIGIN: Final = "default"

TOKEN_SETTING_PREFIX: Final = "tokenSettingPrefix"

TOKEN_SETTINGS: Final = (
    "tokenSecretKey",
    "tokenPublicKey",
    "tokenPublicAlg",
    "tokenAuthClaim",
    "tokenAudienceClaim",
    "tokenAudience",
    "tokenAllowedClockSkewSeconds",
)
"""Keys whose names begin with the value of tokenSettingPrefix, where it is set."""

_SERVICE_HOST: Final = "_SERVICE_HOST"
_SERVICE_LINK: Final = re.compile(r"_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """A loaded configuration. `origins` maps each key to the source of its value.

    `ignored_keys` are the given keys that are Pulsar's but not in the settings class, for one warning.
    """

    value: C
    origins: Mapping[str, str]
    ignored_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Given:
    text: str
    origin: str


def load(
    settings_class: type[C],
    *,
    files: Iterable[str | Path] = (),
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Loaded[C]:
    """Loads an instance of `settings_class`: later files win over earlier ones, `overrides` are `key=value`.

    Raises ConfigError with every problem: unreadable files, unknown keys (with the nearest valid name),
    ill-typed or out-of-range values, and unsupported security or transaction switches.
    """
    settings = settings_of(settings_class)
    problems: list[str] = []
    layers = [_from_file(Path(path), problems) for path in files]
    last = _from_overrides(overrides, problems)
    prefix = _token_prefix([*layers, last], environ or {}) if TOKEN_SETTING_PREFIX in settings else ""
    layers.append(_from_environment(environ or {}, settings, problems, prefix))
    layers.append(last)
    given: dict[str, _Given] = {}
    for layer in layers:
        given.update((key, source) for key, source in layer.items() if _is_set(key, source, settings))
    _take_prefix_off(given, settings)

    values = {key: setting.default for key, setting in settings.items()}
    origins = dict.fromkeys(settings, DEFAULT_ORIGIN)
    ignored = []
    for key, source in given.items():
        if key in settings:
            try:
                values[key] = None if source.text == "" else read_value(settings[key], source.text)
            except ValueError as error:
                shown = hidden(source.text) if settings[key].info.secret else source.text
                problems.append(f"{key} = {shown!r} ({source.origin}) {error}")
            origins[key] = source.origin
        elif is_pulsar_key(key):
            ignored.append(key)
            switch = refused_switches().get(key)
            if switch is not None and switch.is_on(source.text):
                problems.append(
                    f"{key} = {source.text!r} ({source.origin}) asks to {switch.purpose}, which this version "
                    "cannot do; it is never ignored. Remove it to run without"
                )
        else:
            problems.append(f"unknown key {key} ({source.origin}){_nearest(key, settings)}")
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise ConfigError(f"the configuration cannot be used:\n{listed}")
    return Loaded(build(settings_class, values), origins, tuple(sorted(ignored)))


def read_properties(path: Path) -> dict[str, str]:
    """Returns the pairs of a file of Java properties, without spaces around values. Raises ConfigError."""
    import javaproperties  # with XML and 16 modules more, for those who have a file

    try:
        pairs = javaproperties.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a properties file in UTF-8: {error}") from error
    return {key: text.strip() for key, text in pairs.items()}


def describe(loaded: Loaded[Any]) -> list[tuple[str, str, str]]:
    """(key, value, origin) of every setting, for --print-config."""
    values, settings = _flatten(loaded.value), settings_of(type(loaded.value))
    return [
        (key, show_setting(settings[key].info, values[key]), origin) for key, origin in loaded.origins.items()
    ]


def _token_prefix(layers: Sequence[Mapping[str, _Given]], environ: Mapping[str, str]) -> str:
    """The value of tokenSettingPrefix: of the command line, else the environment, else the last file."""
    *files, overrides = layers
    if TOKEN_SETTING_PREFIX in overrides:
        return overrides[TOKEN_SETTING_PREFIX].text
    for name, value in environ.items():
        if name.upper().startswith(ENVIRONMENT_PREFIX) and (
            _fold(name[len(ENVIRONMENT_PREFIX) :]) == _fold(TOKEN_SETTING_PREFIX)
        ):
            return value.strip()
    given = [layer[TOKEN_SETTING_PREFIX].text for layer in files if TOKEN_SETTING_PREFIX in layer]
    return given[-1] if given else ""


def _take_prefix_off(given: dict[str, _Given], settings: Mapping[str, Setting]) -> None:
    """Rename the keys that tokenSettingPrefix renames, as in Pulsar: those without it have no effect then."""
    prefix = given.get(TOKEN_SETTING_PREFIX)
    if prefix is None or TOKEN_SETTING_PREFIX not in settings:
        return
    for key in TOKEN_SETTINGS:
        given.pop(key, None)
        renamed = given.pop(prefix.text + key, None)
        if renamed is not None:
            given[key] = renamed


def _flatten(value: Any) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, field in value.__dataclass_fields__.items():
        inner = getattr(value, name)
        if "setting" in field.metadata:
            flat[field.metadata["setting"].key] = inner
        else:
            flat.update(_flatten(inner))
    return flat


def _is_set(key: str, source: _Given, settings: Mapping[str, Setting]) -> bool:
    """Returns whether the source sets the key. An empty value counts only for an optional setting or an
    unknown key.
    """
    if source.text:
        return True
    return settings[key].optional if key in settings else not is_pulsar_key(key)


def _from_file(path: Path, problems: list[str]) -> dict[str, _Given]:
    try:
        pairs = read_properties(path)
    except ConfigError as error:
        problems.append(str(error))
        return {}
    return {key: _Given(text, f"file {path}") for key, text in pairs.items()}


def _from_environment(
    environ: Mapping[str, str], settings: Mapping[str, Setting], problems: list[str], prefix: str
) -> dict[str, _Given]:
    """`prefix`: the value of tokenSettingPrefix, with which variables name settings of tokens."""
    names = [name for name in sorted(environ) if name.upper().startswith(ENVIRONMENT_PREFIX)]
    if not names:
        return {}
    known = {_fold(key): key for key in (*pulsar_keys(), *settings)}
    if prefix:
        known |= {_fold(prefix + key): prefix + key for key in TOKEN_SETTINGS}
    service_links = _service_links(names)
    found: dict[str, _Given] = {}
    for name in names:
        if name in service_links or name in OF_COMMANDS:
            continue
        folded = _fold(name[len(ENVIRONMENT_PREFIX) :])
        source = _Given(environ[name].strip(), f"environment {name}")
        key = known.get(folded)
        if key is None:
            problems.append(f"unknown key in the environment: {name}{_nearest(folded, settings)}")
        elif key in found and found[key].text != source.text:
            problems.append(f"{key} is given twice, by {found[key].origin} and {source.origin}")
        else:
            found[key] = source
    return found


def _service_links(names: Sequence[str]) -> set[str]:
    """Returns the variables in `names` that Kubernetes sets in each pod for a service named `magnetar...`.

    Without this, a service named magnetar-broker would set brokerServicePort, and any other name would be
    reported as an unknown key.
    """
    links: set[str] = set()
    for host in names:
        if host.endswith(_SERVICE_HOST):
            service = host.removesuffix(_SERVICE_HOST)
            links.update(
                name
                for name in names
                if name.startswith(service) and _SERVICE_LINK.fullmatch(name, len(service)) is not None
            )
    return links


def _from_overrides(overrides: Sequence[str], problems: list[str]) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            problems.append(f"{text!r} on the command line is not of the form key=value")
        else:
            found[key.strip()] = _Given(value.strip(), "command line")
    return found


def _nearest(key: str, settings: Mapping[str, Setting]) -> str:
    """Returns '; did you mean ...?', preferring Magnetar's keys over Pulsar's; empty if no key is close."""
    import difflib  # for wrong keys only

    for candidates, remark in ((settings.keys(), ""), (pulsar_keys(), " (which has no use here)")):
        by_folded = {_fold(candidate): candidate for candidate in sorted(candidates)}
        near = difflib.get_close_matches(_fold(key), by_folded, n=1, cutoff=0.75)
        if near:
            return f"; did you mean {by_folded[near[0]]}{remark}?"
    return ""


def _fold(key: str) -> str:
    return key.replace("_", "").lower()

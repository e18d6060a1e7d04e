"""Generates docs/client-api.md from the public names of magnetar.client: signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import magnetar.client as package
from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId

HEAD: Final = """\
# API of the Python client

Written by `make docs` from the code in `libs/client`; change it there. [client.md](client.md) has examples.

Names are imported from `magnetar.client`, except those that a heading gives with their module, and the
[errors](#errors). Times are in seconds unless a name ends in `_ms`.
"""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "The client": ("Client",),
    "Made by the client": ("Producer", "Consumer", "Reader", "TableView", "Transaction", "Message"),
    "Message ids": ("MessageId",),
    "Options": (
        "Tls",
        "Batching",
        "RoundRobin",
        "SinglePartition",
        "CustomRouting",
        "DeadLetterPolicy",
        "RedeliveryDelay",
        "KeySharedPolicy",
        "Chunking",
    ),
    "Authentication": ("Token", "Basic", "TlsCertificate", "OAuth2", "Credentials"),
    "Schemas": (
        "Json",
        "Avro",
        "ProtobufNative",
        "KeyValue",
        "KeyAndValue",
        "AutoConsume",
        "AutoProduce",
        "AvroField",
    ),
    "Interceptors and spans": (
        "ProducerInterceptor",
        "ConsumerInterceptor",
        "telemetry.ProducerSpans",
        "telemetry.processing",
    ),
}
"""Headings, and the names under each; other public names come under OTHERS, functions that make schemas and
errors in tables."""

OTHERS: Final = "Others"

TYPES: Final = (
    "consumer.options.SubscriptionType",
    "consumer.options.InitialPosition",
    "producer.options.AccessMode",
    "producer.options.Compression",
    "routing.Hashing",
    "schemas.key_value.Encoding",
    "encryption.CryptoFailure",
    "encryption.KeyReader",
    "consumer.consumer.Listener",
    "messages.OnSent",
)
"""Aliases in signatures."""

INTERFACES: Final = ("authentication.methods.Authentication", "routing.Routing", "schemas.schema.Schema")

MACHINERY: Final = (*INTERFACES, "schemas.schema.VersionedSchema", "schemas.schema.PartedSchema")
"""Protocols whose members are told once: producers and consumers call them."""

MADE: Final = frozenset(GROUPS["Made by the client"])
"""Classes whose constructors are the client's."""

_INTERNAL_SECTION: Final = re.compile(r"^(For|Inside)\b")
_INTERNAL: Final = re.compile(r"(^|; )[Ff]or (the client|readers)\b")
_LINE_MAX: Final = 100
_UNSET: Final = inspect.Parameter.empty


def client_reference() -> str:
    """The page."""
    named = {name for names in GROUPS.values() for name in names}
    functions = [name for name in package.__all__ if inspect.isfunction(_object(name))]
    others = [name for name in package.__all__ if name not in named | {*functions, "ClientError"}]
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(name) for name in names]
        if title == "Schemas":
            parts += [
                _table(("function", "values"), ((f"`{name}()`", _doc(_object(name))) for name in functions))
            ]
    if others:
        parts.append(f"\n## {OTHERS}\n")
        parts += [_entry(name) for name in others]
    parts += ["\n## Interfaces\n", *(_entry(name) for name in INTERFACES)]
    parts += ["\n## Types in signatures\n", _table(("type", "is", "meaning"), map(_alias, TYPES))]
    parts += ["\n## Errors\n", _errors()]
    text = "\n".join(part.rstrip("\n") + "\n" for part in parts)
    return re.sub(r"\n{3,}", "\n\n", text)


def _object(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(import_module(f"{package.__name__}.{module}" if module else package.__name__), last)


def _entry(name: str) -> str:
    """A class or function: heading, signature, docstring, members."""
    found = _object(name)
    full = f"{package.__name__}.{name}" if "." in name else name
    lines = [f"\n### {full}\n"]
    if not inspect.isclass(found):
        return "\n".join([*lines, _code(found.__name__, found), "", _doc(found)])
    if (inspect.getdoc(found) or "") == _doc(found):
        lines += [_doc(found), ""]
    if name not in MADE and not _is_protocol(found):
        constructed = vars(found).get("__init__")
        if constructed is not None:
            lines += [_code(found.__name__, constructed), "", _doc(constructed), ""]
    told = set() if _is_protocol(found) else _machinery()
    source = _Source(found)
    lines += _fields(found, source, told)
    for member, function in source.public_methods():
        if member in told or any(member in vars(base) for base in found.__bases__):
            continue
        if member == "__aiter__":
            lines += [f"`async for message in {found.__name__.lower()}`: {_doc(function)}", ""]
        else:
            owned = isinstance(vars(found)[member], classmethod | staticmethod)
            called = f"{found.__name__}.{member}" if owned else member
            lines += [_code(called, function), "", _doc(function), ""]
    return "\n".join(lines)


@cache
def _machinery() -> frozenset[str]:
    return frozenset(each for name in MACHINERY for each in vars(_object(name)) if not each.startswith("_"))


class _Source:
    """The source of a class: its sections, and the docstrings of its attributes."""

    def __init__(self, found: type) -> None:
        self._class = found
        self._text = textwrap.dedent(inspect.getsource(found))
        (node,) = ast.parse(self._text).body
        assert isinstance(node, ast.ClassDef)
        self._node = node

    def attributes(self) -> Iterator[tuple[str, str, str]]:
        """Names, types and docstrings of annotated attributes and of properties that applications use."""
        body = self._node.body
        for at, each in enumerate(body):
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                said = _string(body[at + 1]) if at + 1 < len(body) else ""
                if not each.target.id.startswith("_") and not _INTERNAL.search(said):
                    yield each.target.id, ast.unparse(each.annotation), said
        for name, value in self._public():
            if isinstance(value, property):
                yield name, str(inspect.signature(_function(value)).return_annotation), _doc(value)

    def public_methods(self) -> Iterator[tuple[str, Any]]:
        """Names and functions of methods that applications call."""
        for name, value in self._public(("__aiter__",)):
            if not isinstance(value, property):
                yield name, value

    def _public(self, more: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        comments = {
            number: line.strip("# ")
            for number, line in enumerate(self._text.splitlines(), 1)
            if re.match(r"    # [A-Z]", line)
        }
        for each in self._node.body:
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            value = vars(self._class)[each.name]
            section = max((line for line in comments if line < each.lineno), default=0)
            internal = _INTERNAL_SECTION.match(comments.get(section, "")) or _INTERNAL.search(_doc(value))
            if (each.name in more or not each.name.startswith("_")) and not internal:
                yield each.name, value


def _fields(found: type, source: _Source, told: Collection[str]) -> list[str]:
    """The table of attributes, with defaults of a dataclass."""
    fields = (
        {each.name: each for each in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else {}
    )
    rows = []
    for name, kind, said in source.attributes():
        default = ""
        if name in told or not said:
            continue
        if name in fields:
            if fields[name].default is not dataclasses.MISSING:
                default = f"`{_shown(fields[name].default)}`"
            if not fields[name].init:
                continue
        rows.append((f"`{name}`", f"`{kind}`", default, said))
    if not rows:
        return []
    if not any(row[2] for row in rows):
        return [_table(("attribute", "type", "meaning"), ((row[0], row[1], row[3]) for row in rows)), ""]
    return [_table(("attribute", "type", "default", "meaning"), rows), ""]


def _alias(name: str) -> tuple[str, str, str]:
    """The row of a type alias."""
    module, _, last = name.rpartition(".")
    body = ast.parse(inspect.getsource(import_module(f"{package.__name__}.{module}"))).body
    for at, each in enumerate(body):
        if isinstance(each, ast.Assign):
            targets, value = each.targets, each.value
        elif isinstance(each, ast.AnnAssign) and each.value is not None:
            targets, value = [each.target], each.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == last for target in targets):
            if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal":
                choices = ast.literal_eval(value.slice)
                return f"`{last}`", ", ".join(f'`"{choice}"`' for choice in choices), _string(body[at + 1])
            return f"`{last}`", f"`{ast.unparse(value)}`".replace("'", ""), _string(body[at + 1])
    raise AssertionError(f"{name} is not an alias; correct TYPES")


def _errors() -> str:
    def below(found: type[ClientError]) -> Iterator[type[ClientError]]:
        yield found
        for each in found.__subclasses__():
            yield from below(each)

    ours = dict.fromkeys(each for each in below(ClientError) if each.__module__ == ClientError.__module__)
    rows = (
        (
            f"`{each.__name__}`",
            "" if each is ClientError else f"`{each.__bases__[0].__name__}`",
            "yes" if each.retriable else "",
            _doc(each),
        )
        for each in ours
    )
    where = f"In `{ClientError.__module__}`; `ClientError` also in `{package.__name__}`."
    return f"{where}\n\n{_table(('error', 'is a', 'retriable', 'meaning'), rows)}"


def _code(name: str, member: Any) -> str:
    """The signature in a block; a property is no call."""
    function = _function(member)
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    shown: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        annotation = "" if each.annotation is _UNSET else f": {each.annotation}"
        default = "" if each.default is _UNSET else f" = {_shown(each.default)}"
        shown.append(f"{each.name}{annotation}{default}")
    is_async = inspect.iscoroutinefunction(function)
    result = signature.return_annotation
    returns = "" if result is _UNSET or (result in (None, "None") and name[0].isupper()) else f" -> {result}"
    begin = f"{'await ' if is_async else ''}{name}("
    line = f"{begin}{', '.join(shown)}){returns}"
    if len(line) > _LINE_MAX:
        line = f"{begin}\n" + "".join(f"    {each},\n" for each in shown) + f"){returns}"
    return f"```text\n{line}\n```"


def _function(member: Any) -> Callable[..., Any]:
    if isinstance(member, property):
        assert member.fget is not None
        return member.fget
    found: Callable[..., Any] = getattr(member, "__func__", member)
    unwrapped: Callable[..., Any] = inspect.unwrap(found)
    return unwrapped


def _shown(default: object) -> str:
    """A default as a program would write it."""
    for name in ("EARLIEST", "LATEST"):
        if default is getattr(MessageId, name):
            return f"MessageId.{name}"
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, float) and default == float("inf"):
        return 'float("inf")'
    if type(default).__repr__ is object.__repr__:
        return f"{type(default).__name__}()"
    if dataclasses.is_dataclass(default):
        changed = [
            f"{each.name}={_shown(getattr(default, each.name))}"
            for each in dataclasses.fields(default)
            if getattr(default, each.name) != each.default
        ]
        return f"{type(default).__name__}({', '.join(changed)})"
    return repr(default)


def _doc(member: Any) -> str:
    found = getattr(member, "__doc__", None)
    return inspect.cleandoc(found) if found else ""


def _string(node: ast.stmt) -> str:
    """The text of a statement that is a docstring; empty for another one."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return inspect.cleandoc(node.value.value)
    return ""


def _is_protocol(found: type) -> bool:
    return bool(getattr(found, "_is_protocol", False))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = [[re.sub(r"\s+", " ", each).replace("|", "\\|") for each in row] for row in rows]
    lines = [heads, ("---",) * len(heads), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

"""Writes the reference of the Python interface, from the code: every public name, its arguments, what it says of
itself.

Run by `make map` from the root of the repository; a test holds the page against the code, and a name without a
docstring fails it. The page is never edited by hand.
"""

import ast
import enum
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest.mock import MagicMock

from sqlalchemy import MetaData

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs/reference/python.md"
GENERATED: Final = "<!-- Written by `make map`; change the code, not this page. -->"
LINE_CHARACTERS_MAX: Final = 100

# What a program may import, and from where: all that a module names in `__all__`, or what is named here.
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "semel": ("broker", "Broker", "EmbeddedBroker"),
    "semel.settings": (),
    "semel.publish": (),
    "semel.outbox": (),
    "semel.inbox": (),
    "semel.offsets": (),
    "semel.celery": (),
    "semel.http": (),
    "semel.steps": (),
    "semel.http.client": (),
    "semel.http.django": (),
    "semel.django.inbox": ("handler", "Handler"),
    "semel.django.outbox": ("add", "add_many"),
    "semel.django.celery": (),
    "semel.retries": (),
    "semel.metrics": (),
    "semel.watch": (),
    "semel.schema": (),
    "semel.database": (
        *("engine_of", "begin_immediately", "within", "within_async", "elsewhere"),
        *("NotImmediate", "NotInTransaction", "UnknownConnection", "UnknownDatabase", "WrittenElsewhere"),
    ),
    "semel.spark": (),
    "semel.audit": (),
    "semel.testing.broker": ("FaultyBroker", "StoredRecord"),
    "semel.testing.security": ("Security", "Login"),
    "semel.testing.served": ("ServedBroker", "ServeFailed"),
    "semel.testing.clock": ("Clock",),
    "semel.testing.stores": ("MemoryStore", "FaultyStore", "StoreFault"),
    "semel.testing.virtual_loop": ("VirtualLoop", "Deadlock", "NoEnd"),
    "semel.testing.checkers": (
        *("Event", "Seen", "Truth", "lost_writes", "duplicates", "disorder", "unfaithful_reads", "stuck"),
        *("broken_transactions", "zombies", "unfaithful_copies", "dirty_offsets", "lost_commits", "shared_ownership"),
    ),
    "semel.testing.faulty": ("FaultyFiles", "Fault"),
    "semel.chaos.proxy": ("ChaosProxy",),
    "semel.chaos.plan": ("Fault", "FaultPlan"),
    "semel.chaos.plan_file": ("read_plan",),
}
# The other methods of these classes are for semel's own rooms.
FOR_PROGRAMS: Final = {
    "AsyncInbox": {"run", "take", "retry_due", "stop"},
    "Broker": {"start", "stop", "bootstrap"},
    "ChaosProxy": {"start", "stop", "bootstrap", "arm", "fired"},
    "Fault": set[str](),
    "FaultPlan": {"arm", "calm", "fired"},
    "FaultyStore": {"arm", "calm", "fired"},
    "FaultyFiles": {"arm", "survivors", "fired"},
    "Idempotency": {"connection", "key", "session"},
    "Place": set[str](),
    "Retries": set[str](),
}
Constants = Mapping[str, Any]
# These are called as what they hold is asked for.
WITH: Final = {"contextmanager": "with ", "asynccontextmanager": "async with "}


def pages() -> dict[Path, str]:
    lines = [
        "# The Python interface",
        "",
        GENERATED,
        "",
        "What a program may import. Everything else is for semel's own rooms, and may change at any time. Arguments",
        "after a `*` are given by name. How to use it: [the guides](../README.md#how-to-get-something-done).",
        "",
    ]
    with stood_in("celery", "celery.exceptions"):
        for module, names in MODULES.items():
            lines += described(module, names or tuple(importlib.import_module(module).__all__))
    return {PAGE: re.sub(r"\n{3,}", "\n\n", "\n".join(lines))}


@contextmanager
def stood_in(library: str, *modules: str) -> Iterator[None]:
    """The page is made from the sources, so a library that is not in the lock need not be there. What was imported
    without it goes again."""
    if importlib.util.find_spec(library) is not None:
        yield
        return
    names = (library, *modules)
    sys.modules.update({name: MagicMock(__spec__=ModuleSpec(name, None)) for name in names})
    yield
    for name in [name for name in sys.modules if library in name.split(".")]:
        del sys.modules[name]


def described(module: str, names: tuple[str, ...]) -> Iterator[str]:
    face = importlib.import_module(module)
    yield from (f"## {module}", "", for_readers(said_by(face, module)), "")
    found = {name: value for name in names if not isinstance(value := getattr(face, name), str | tuple)}
    found = {name: value for name, value in found.items() if not inspect.ismodule(value)}
    errors = {name: kind for name, kind in found.items() if inspect.isclass(kind) and issubclass(kind, BaseException)}
    for name, value in found.items():
        if name not in errors:
            yield from of_value(module, name, value)
    if errors:
        yield from ("| error | |", "|---|---|")
        yield from (f"| `{name}` | {in_one_line(said_by(kind, name))} |" for name, kind in errors.items())
        yield ""


def of_value(module: str, name: str, value: Any) -> Iterator[str]:
    """A heading, how it is written, and what it says of itself."""
    yield from (f"### {module}.{name}", "")
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        yield from (said_by(value, name), "", ", ".join(f"`{one.name}`" for one in value), "")
    elif inspect.isclass(value):
        yield from (*fenced(signature(name, *made_by(value))), said_by(value, name), "", *members(name, value), "")
    elif inspect.isfunction(value):
        yield from (*fenced(signature(name, definition(value), constants_of(value))), said_by(value, name), "")
    else:
        assert isinstance(value, MetaData), f"{name} is none of what this page can describe: leave it out of MODULES"
        yield from ("The tables, for `create_all` and for Alembic.", "")


def members(name: str, kind: type) -> Iterator[str]:
    """Methods and properties that say what they are for; the class's own before those of its parents in semel."""
    seen = set[str]()
    for base in ours(kind):
        for member in definition(base).body:
            if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) or member.name in seen:
                continue
            seen.add(member.name)
            text = ast.get_docstring(member)
            is_public = not member.name.startswith("_") and member.name in FOR_PROGRAMS.get(name, {member.name})
            if text is not None and is_public:
                yield f"- `{signature(member.name, member, constants_of(base))}`: {in_one_line(text)}"


def made_by(kind: type) -> tuple[ast.AST, Constants]:
    """What says with which arguments the class is called, its `__init__` or its fields, and what names mean there."""
    for base in ours(kind):
        for member in definition(base).body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                return member, constants_of(base)
    return definition(kind), constants_of(kind)


def constants_of(value: Any) -> Constants:
    return vars(sys.modules[inspect.unwrap(value).__module__])


def ours(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if base.__module__.startswith("semel."))


def signature(name: str, node: ast.AST, constants: Constants) -> str:
    """How it is written: on one line, or with a line for each argument where that would be too long."""
    match node:
        case ast.ClassDef():
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            return _call(name, [ast.unparse(field) for field in fields], "")
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            decorators = [ast.unparse(one) for one in node.decorator_list]
            if "property" in decorators:
                return name
            answer = ast.unparse(node.returns).strip("'") if node.returns is not None else "None"
            asked = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
            for decorator in decorators:
                if (way := WITH.get(decorator.rpartition(".")[2])) is not None:
                    asked, answer = way, answer.partition("[")[2].removesuffix("]")
            arguments = list(arguments_of(node.args, constants))
            end = "" if node.name == "__init__" else f" -> {answer}"
            return asked + _call(name, arguments, end)
        case _:
            raise TypeError(f"{name} is neither a class nor a function")


def _call(name: str, arguments: list[str], end: str) -> str:
    arguments = [argument.replace("'", '"') for argument in arguments]
    line = f"{name}({', '.join(arguments)}){end}"
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    return "\n".join((f"{name}(", *(f"    {argument}," for argument in arguments), f"){end}"))


def arguments_of(given: ast.arguments, constants: Constants) -> Iterator[str]:
    """Each as it is written, without `self`, and with a number in place of its name."""
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    for argument, default in zip(plain, defaults, strict=True):
        if argument.arg != "self":
            yield with_default(argument, default, constants)
    if given.vararg is not None:
        yield f"*{ast.unparse(given.vararg)}"
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield with_default(argument, default, constants)
    if given.kwarg is not None:
        yield f"**{ast.unparse(given.kwarg)}"


def with_default(argument: ast.arg, default: ast.expr | None, constants: Constants) -> str:
    written = ast.unparse(argument).replace("'DataFrame'", "DataFrame")
    if default is None:
        return written
    value = constants.get(ast.unparse(default))
    if isinstance(value, int | float):
        return f"{written} = {value:_}"
    return f"{written} = {repr(value) if isinstance(value, str) else ast.unparse(default)}"


def definition(value: Any) -> Any:
    path = inspect.getsourcefile(inspect.unwrap(value))
    assert path is not None
    *_overloads, found = [node for node in _parsed(path).body if getattr(node, "name", None) == value.__name__]
    return found


def _cleaned(value: Any) -> str | None:
    return ast.get_docstring(definition(value))


def _module(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return _parsed(module.__file__)


@cache
def _parsed(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text())


def said_by(value: Any, name: str) -> str:
    """The docstring that the author wrote, and not the one that Python makes where there is none."""
    # A module's is read from its source: from Python 3.13 on `__doc__` has lost the indent of an example.
    text = ast.get_docstring(_module(value), clean=False) if inspect.ismodule(value) else _cleaned(value)
    if not text:
        raise ValueError(f"{name} is public and has no docstring: write one")
    return text.strip()


def for_readers(text: str) -> str:
    """Without what tells those who change a module what it must never do."""
    paragraphs = (
        re.sub(r"(^|\s)This (room|file) .*", "", paragraph, flags=re.DOTALL) for paragraph in text.split("\n\n")
    )
    return "\n\n".join(filter(None, paragraphs))


def in_one_line(text: str) -> str:
    return inspect.cleandoc(text).partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def fenced(text: str) -> Iterator[str]:
    yield from ("```", text, "```", "")


def main() -> None:
    for path, content in pages().items():
        path.write_text(content)


if __name__ == "__main__":
    main()

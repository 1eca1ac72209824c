"""Finds a piece of Python in a syntax tree, and puts another piece there.

Pieces are compared as syntax trees: line breaks, comments, quotes, parentheses and indentation make no difference. A
piece is one of these, and so is what stands there instead:

    an expression           header.checksum != checksum
    one or more statements  file.write_at([content], 0)
                            file.sync()
    some elements           "cookie", "set-cookie"
    an argument of a call   isolation="read_committed"
    an entry                "isolation.level": "read_committed"
    an except clause        except OSError: ...

`...` as the body of a statement stands for whatever body is there, and `_` for whatever expression; in what stands
there instead, they stand for what was found, in the same order. Nothing instead removes the piece. This must never
plant a piece at one of several places, or nowhere: it says what it found.
"""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# From where a single piece can be taken away, and the rest is still Python.
_REMOVABLE: Final = {"args", "decorator_list", "elts", "keywords", "entries"}
# The field of a dictionary that its syntax tree does not have: each key with its value.
_ENTRIES: Final = "entries"


class NotPlanted(Exception):
    """The bug cannot be planted; the message says why."""


class Slot(NamedTuple):
    """A place in the tree: a field of a node, and if that holds a list, from which element to which."""

    parent: ast.AST
    field: str
    start: int = -1
    stop: int = -1

    @property
    def nodes(self) -> list[ast.AST]:
        if self.field == _ENTRIES and isinstance(self.parent, ast.Dict):
            return [ast.Dict(self.parent.keys[self.start : self.stop], self.parent.values[self.start : self.stop])]
        held = getattr(self.parent, self.field)
        return [held] if self.start < 0 else held[self.start : self.stop]

    @property
    def line(self) -> int:
        return getattr(self.nodes[0], "lineno", 0) or getattr(self.parent, "lineno", 0)

    def fill(self, nodes: Sequence[ast.AST]) -> None:
        if self.start < 0:
            [node] = nodes
            setattr(self.parent, self.field, node)
            return
        if self.field == _ENTRIES:
            for field in ("keys", "values"):
                ours = [one for node in nodes for one in getattr(node, field)]
                getattr(self.parent, field)[self.start : self.stop] = ours
            return
        held = getattr(self.parent, self.field)
        held[self.start : self.stop] = nodes
        if not held and self.field == "body":
            held.append(ast.copy_location(ast.Pass(), self.parent))


class Holes(NamedTuple):
    """What `...` and `_` stand for, in the order in which they stand there."""

    bodies: list[list[ast.stmt]]
    expressions: list[ast.expr]


class Found(NamedTuple):
    """Where the piece stands, what is to stand there, and what is to be put into its holes."""

    slot: Slot
    instead: Sequence[ast.AST]
    holes: Holes


def plant(tree: ast.Module, symbol: str, piece: str, instead: str) -> None:
    """Put a piece where another one stands."""
    found = find(tree, symbol, piece, instead)
    filler = _Filler(found)
    filled = [filler.visit(node) for node in found.instead]
    found.slot.fill([node for one in filled for node in (one if isinstance(one, list) else [one])])
    ast.fix_missing_locations(tree)


def find(tree: ast.Module, symbol: str, piece: str, instead: str) -> Found:
    """Where the piece stands in a function, in a class outside of its methods, in the assignment to a name; or without
    a symbol, in the module outside of its functions and classes."""
    homes = _homes(tree, symbol)
    if not homes:
        raise NotPlanted(f"there is no {symbol}")
    found = _search(homes, piece, instead)
    if len(found) != 1:
        raise NotPlanted(_how_often(tree, found, piece, instead))
    return found[0]


def _how_often(tree: ast.Module, found: Sequence[Found], piece: str, instead: str) -> str:
    if found:
        lines = ", ".join(str(one.slot.line) for one in found)
        return f"it stands there {len(found)} times, in the lines {lines}: {piece}"
    others = [str(one.slot.line) for one in _search([_whole(tree)], piece, instead, everywhere=True)]
    where = f"but elsewhere in the module, in line {', '.join(others)}" if others else "nor elsewhere in the module"
    return f"it does not stand there, {where}: {piece}"


# -- what the pieces are ---------------------------------------------------------------------------------------------


def _expression(code: str) -> list[ast.AST]:
    return [ast.parse(f"({code}\n)", mode="eval").body] if code else []


def _statements(code: str) -> list[ast.AST]:
    return list(ast.parse(code).body)


def _argument(code: str) -> list[ast.AST]:
    call = ast.parse(f"call({code}\n)", mode="eval").body
    if not isinstance(call, ast.Call) or call.args or len(call.keywords) > 1:
        raise SyntaxError("not an argument with a name")
    return list(call.keywords)


def _elements(code: str) -> list[ast.AST]:
    several = ast.parse(f"[{code}\n]", mode="eval").body
    if not isinstance(several, ast.List) or len(several.elts) < 2:
        raise SyntaxError("not several elements")
    return list(several.elts)


def _entry(code: str) -> list[ast.AST]:
    entries = ast.parse(f"{{{code}\n}}", mode="eval").body
    if not isinstance(entries, ast.Dict):
        raise SyntaxError("not a key with its value")
    return [entries] if entries.keys else []


def _except_clause(code: str) -> list[ast.AST]:
    [statement] = ast.parse(f"try: pass\n{code}").body
    if not isinstance(statement, ast.Try) or statement.orelse or statement.finalbody:
        raise SyntaxError("not an except clause")
    return list(statement.handlers)


_READERS: Final[tuple[Callable[[str], list[ast.AST]], ...]] = (
    _expression,
    _statements,
    _elements,
    _argument,
    _entry,
    _except_clause,
)


def _readings(piece: str, instead: str) -> Iterator[tuple[list[ast.AST], list[ast.AST]]]:
    """All that both pieces can be. A whole statement is also an expression, and is taken for that if both are."""
    piece, instead = (textwrap.dedent(code).strip() for code in (piece, instead))
    some = False
    for read in _READERS:
        try:
            pieces, others = read(piece), read(instead)
        except SyntaxError:
            continue
        if pieces and not (read is _statements and some and others):
            some = True
            yield pieces, others
    if not some:
        raise NotPlanted(f"these are not two pieces of the same kind: {piece!r} and {instead!r}")


# -- where they may stand --------------------------------------------------------------------------------------------


def _homes(tree: ast.Module, symbol: str) -> list[Slot]:
    """Where a symbol is defined: several times, if it is a property and its setter, or depends on an `if`."""
    homes = [_whole(tree)]
    for name in symbol.split(".") if symbol else ():
        homes = [slot for home in homes for slot in _slots(home) if name in _names(slot.nodes[0])]
    return homes


def _whole(tree: ast.Module) -> Slot:
    return Slot(ast.Interactive([tree]), "body", 0, 1)  # type: ignore[list-item]


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _slots(home: Slot, length: int = 1, *, everywhere: bool = False) -> Iterator[Slot]:
    """All places in a home for so many pieces. What a module or a class defines is a home of its own."""
    if length == 1:
        yield home
    [node] = home.nodes
    yield from _inside(node, length, everywhere or not isinstance(node, ast.Module | ast.ClassDef))


def _inside(node: ast.AST, length: int, everywhere: bool) -> Iterator[Slot]:
    if isinstance(node, ast.Dict) and length == 1:
        yield from (Slot(node, _ENTRIES, start, start + 1) for start in range(len(node.keys)))
    for field, held in ast.iter_fields(node):
        if isinstance(held, ast.AST) and length == 1:
            yield Slot(node, field)
        elif isinstance(held, list):
            yield from (Slot(node, field, start, start + length) for start in range(len(held) - length + 1))
        for child in held if isinstance(held, list) else [held]:
            if isinstance(child, ast.AST) and (everywhere or not isinstance(child, _DEFINITIONS)):
                yield from _inside(child, length, everywhere)


# -- what is equal, and what is put there ----------------------------------------------------------------------------


def _search(homes: Sequence[Slot], piece: str, instead: str, *, everywhere: bool = False) -> list[Found]:
    return [
        Found(slot, others, holes)
        for pieces, others in _readings(piece, instead)
        for home in homes
        for slot in _slots(home, len(pieces), everywhere=everywhere)
        if _may_be_there(slot, pieces, others) and _equal(pieces, slot.nodes, holes := Holes([], []))
    ]


def _may_be_there(slot: Slot, pieces: Sequence[ast.AST], others: Sequence[ast.AST]) -> bool:
    """Whether it is still Python without the piece; and several elements are none if they are all there is."""
    if isinstance(pieces[0], ast.stmt):
        return True
    if len(pieces) > 1:
        return len(pieces) < len(getattr(slot.parent, slot.field))
    return bool(others) or (slot.start >= 0 and slot.field in _REMOVABLE)


def _equal(piece: object, there: object, holes: Holes) -> bool:
    """Whether two trees are alike, apart from their positions; notes what stands where the piece has a hole."""
    match piece:
        case [ast.Expr(value=ast.Constant(value=builtins.Ellipsis))] if isinstance(there, list):
            holes.bodies.append(there)
            return bool(there)
        case list():
            return (
                isinstance(there, list)
                and len(piece) == len(there)
                and all(_equal(one, other, holes) for one, other in zip(piece, there, strict=True))
            )
        case ast.Name(id="_", ctx=ast.Load()) if isinstance(there, ast.expr):
            holes.expressions.append(there)
            return True
        case ast.AST():
            return type(piece) is type(there) and all(
                _equal(held, getattr(there, field, None), holes) for field, held in ast.iter_fields(piece)
            )
    return type(piece) is type(there) and piece == there


class _Filler(ast.NodeTransformer):
    """Puts what was found into the holes of what is to stand there instead."""

    def __init__(self, found: Found) -> None:
        self._bodies = iter(found.holes.bodies)
        self._expressions = iter(found.holes.expressions)
        self._place = found.slot.nodes[0]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if "lineno" in node._attributes:
            ast.copy_location(node, self._place)
        return super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        if isinstance(node.value, ast.Constant) and node.value.value is Ellipsis:
            return next(self._bodies, None) or self.generic_visit(node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "_" and isinstance(node.ctx, ast.Load):
            return next(self._expressions, None) or self.generic_visit(node)
        return self.generic_visit(node)

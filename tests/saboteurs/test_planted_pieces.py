"""A piece of Python is found wherever its syntax tree is, and planted at one place or not at all."""

import ast

import pytest

from saboteurs.pieces import NotPlanted, plant

SOURCE = '''
"""A shop."""

LIMITS: Final = {"rows": 5, "bytes": 7}
KINDS = frozenset({"small", "large"})


class Shop:
    """Sells."""

    rows_max: int = 5

    @once
    def sell(self, count, *, kind="small"):
        # Never more than there are.
        if (
            count > self.left  # of any kind
        ):
            raise SoldOut(count,
                          self.left)
        else:
            self.left -= count
        with self.lock:
            self.note(count)
            self.note('sold')
        return self.left

    async def restock(self, count):
        for each in range(count):
            self.left += 1
        def told():
            return count + 1
        try:
            await self.ask(told, kind="small")
        except OSError as error:
            self.note(error)


def sell(count):
    return count + 1
'''


def planted(symbol: str, piece: str, instead: str) -> str:
    """What has changed: lines that are there without and with the bug."""
    tree = ast.parse(SOURCE)
    plant(tree, symbol, piece, instead)
    compile(tree, "shop.py", "exec")
    before, after = (ast.unparse(one).splitlines() for one in (ast.parse(SOURCE), tree))
    gone, come = (
        [line.strip() for line in ours if line not in theirs] for ours, theirs in ((before, after), (after, before))
    )
    return f"{'; '.join(gone)} -> {'; '.join(come)}"


@pytest.mark.parametrize(
    ("symbol", "piece", "instead", "change"),
    [
        # An expression, whatever its layout.
        ("Shop.sell", "count>self.left", "False", "if count > self.left: -> if False:"),
        ("Shop.sell", "SoldOut( count, self.left )", "SoldOut(0)", None),
        ("Shop.sell", 'self.note("sold")', "self.note(None)", "self.note('sold') -> self.note(None)"),
        # Statements: one, several, none instead of one.
        ("Shop.sell", "self.left -= count", "self.left = 0", "self.left -= count -> self.left = 0"),
        (
            "Shop.sell",
            """
            self.note(count)
            self.note("sold")  # in another layout
            """,
            "self.note('nothing')",
            "self.note(count); self.note('sold') -> self.note('nothing')",
        ),
        ("Shop.restock", "self.left += 1", "", "self.left += 1 -> pass"),
        ("Shop.restock", "self.left += 1", "self.ask()", "self.left += 1 -> self.ask()"),
        # What a statement does is left as it is, or wrapped, or goes without the statement.
        (
            "Shop.restock",
            "for each in range(count): ...",
            "while count: ...",
            "for each in range(count): -> while count:",
        ),
        ("Shop.sell", "with self.lock: ...", "...", None),
        ("Shop.sell", "if count > self.left: ...\nelse: ...", "if count: ...\nelse: ...", None),
        # Any expression.
        ("Shop.sell", "raise SoldOut(_, self.left)", "raise SoldOut(_)", None),
        # Elements, entries, arguments, decorators, except clauses.
        ("KINDS", '"large"', "", "KINDS = frozenset({'small', 'large'}) -> KINDS = frozenset({'small'})"),
        ("LIMITS", '"rows": 5', '"rows": 6', None),
        ("LIMITS", '"rows": 5', "", None),
        ("Shop.restock", 'kind="small"', 'kind="large"', None),
        ("Shop.sell", "once", "", "@once -> "),
        ("Shop.restock", "except OSError as error: ...", "except KeyError as error: ...", None),
        # A whole assignment, an inner function, a class without its methods.
        ("", "KINDS = _", "KINDS = None", "KINDS = frozenset({'small', 'large'}) -> KINDS = None"),
        ("Shop.restock.told", "count + 1", "count", "return count + 1 -> return count"),
        ("Shop", "5", "6", "rows_max: int = 5 -> rows_max: int = 6"),
        ("sell", "count + 1", "count", None),
    ],
)
def test_a_piece_is_found_whatever_its_layout_and_replaced(
    symbol: str, piece: str, instead: str, change: str | None
) -> None:
    found = planted(symbol, piece, instead)
    assert found != " -> "
    assert change is None or found == change


@pytest.mark.parametrize(
    ("symbol", "piece", "instead", "message"),
    [
        ("Shop.buy", "count", "0", "there is no Shop.buy"),
        ("buy", "count", "0", "there is no buy"),
        ("Shop.sell", "count > self.right", "False", "it does not stand there, nor elsewhere in the module"),
        ("Shop.restock", "self.left -= count", "", "it does not stand there, but elsewhere in the module, in line 22"),
        ("Shop.sell", "self.left", "0", "it stands there 3 times, in the lines"),
        # In a class and in a module stands what is not in a function of theirs.
        ("", "count + 1", "count", "elsewhere in the module, in line 32, 40"),
        ("Shop", "self.left += 1", "", "elsewhere in the module, in line 30"),
        ("Shop.sell", "count > ", "", "these are not two pieces of the same kind"),
        ("Shop.sell", "count > self.left", "return", "it does not stand there"),
    ],
)
def test_a_piece_that_does_not_stand_there_just_once_is_not_planted(
    symbol: str, piece: str, instead: str, message: str
) -> None:
    tree = ast.parse(SOURCE)
    with pytest.raises(NotPlanted, match=message):
        plant(tree, symbol, piece, instead)
    assert ast.dump(tree) == ast.dump(ast.parse(SOURCE))


def test_what_is_planted_is_where_the_piece_was() -> None:
    """So that a traceback shows the line."""
    tree = ast.parse(SOURCE)
    plant(tree, "Shop.sell", "return self.left", "return self.right")
    [line] = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "right"]
    assert SOURCE.splitlines()[line - 1].strip() == "return self.left"

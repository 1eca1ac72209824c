"""Regular expressions for names of topics, in the syntax of RE2, as KIP-848 has it. They are matched in linear time.

The expression comes from a client and is matched on the event loop, so a backtracking matcher is out of the question:
an expression of a dozen characters could keep it busy for years. This is an NFA whose sets of places are cached as the
states of a DFA, so that matching usually takes one look-up for each character of a name. It distinguishes only ASCII
characters, because names of topics have no others. All other characters, which transactional ids may have, count as the
same character, and no expression can name one of them. The parser refuses invalid expressions, and those with more than
`PLACES_MAX` places. This file must never use `re`.
"""

import string
from collections.abc import Callable, Iterable
from typing import Final, Never

from semel.log.core.values import value
from semel.wire.refusals import INVALID_REGULAR_EXPRESSION, Refused
from semel.wire.steps import Steps, finish

# Far longer than people write. But clients join several expressions into one.
PATTERN_CHARACTERS_MAX: Final = 4096
# The states of the NFA. The first time, matching one character takes time in proportion to them.
PLACES_MAX: Final = 1000
NESTING_MAX: Final = 100
REPETITIONS_MAX: Final = 1000
# The size of the cache of steps: each step counts as one, plus one for each place it leads to, which takes 64 bytes.
_REMEMBERED_MAX: Final = 50_000

_LETTERS: Final = frozenset(string.ascii_letters)
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = _LETTERS | _DIGITS | {"_"}
_ASCII: Final = frozenset(map(chr, range(128)))
# Stands for every character that is not ASCII.
_OTHER: Final = "\N{REPLACEMENT CHARACTER}"
_ALL: Final = _ASCII | {_OTHER}
_SPACES: Final = frozenset(" \t\n\r\f")
_PUNCTUATION: Final = frozenset(string.punctuation)
_NONE: Final[frozenset[str]] = frozenset()

_CLASSES: Final = {
    "d": _DIGITS,
    "D": _ALL - _DIGITS,
    "w": _WORD,
    "W": _ALL - _WORD,
    "s": _SPACES,
    "S": _ALL - _SPACES,
}
_NAMED_CLASSES: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": _ASCII,
    "blank": frozenset(" \t"),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": _DIGITS,
    "graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "lower": frozenset(string.ascii_lowercase),
    "print": _LETTERS | _DIGITS | _PUNCTUATION | {" "},
    "punct": _PUNCTUATION,
    "space": _SPACES | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_UNICODE_CLASSES: Final = {
    "L": _LETTERS,
    "Lu": _NAMED_CLASSES["upper"],
    "Ll": _NAMED_CLASSES["lower"],
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": _PUNCTUATION - frozenset("$+<=>^`|~"),
    "Pd": frozenset("-"),
    "Pc": frozenset("_"),
    "Po": frozenset("!\"#%&'*,./:;?@\\"),
    "S": frozenset("$+<=>^`|~"),
    "Z": frozenset(" "),
    "Latin": _LETTERS,
    "Any": _ALL,
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


# The parts of an expression.


@value
class _Characters:
    """One character out of these."""

    characters: frozenset[str]


@value
class _Condition:
    """A condition on the characters before and after a place: `holds(before, after)`. None is the end of the name."""

    holds: Callable[[str | None, str | None], bool]


@value
class _Sequence:
    parts: tuple["_Node", ...]


@value
class _Choice:
    options: tuple["_Node", ...]


@value
class _Repeated:
    """A part that repeats at least `least` times and at most `most` times; None is no limit."""

    part: "_Node"
    least: int
    most: int | None


_Node = _Characters | _Condition | _Sequence | _Choice | _Repeated


def _is_edge(before: str | None, after: str | None) -> bool:
    return (before in _WORD) != (after in _WORD)


_AT_BEGIN: Final = _Condition(lambda before, after: before is None)
_AT_END: Final = _Condition(lambda before, after: after is None)
_AT_EDGE: Final = _Condition(_is_edge)
_NOT_AT_EDGE: Final = _Condition(lambda before, after: not _is_edge(before, after))
_CONDITIONS: Final = {"A": _AT_BEGIN, "z": _AT_END, "b": _AT_EDGE, "B": _NOT_AT_EDGE}


class TopicPattern:
    """A regular expression that a whole name must match. Refused if it is not valid."""

    def __init__(self, text: str) -> None:
        self.text = text
        # For each place: the characters or the condition that lead to the next places, and those places.
        self._places: list[tuple[_Characters | _Condition | None, tuple[int, ...]]] = []
        end = self._add(None, ())
        self._end = end
        self._begin = (frozenset({self._lay(_Parser(text).parse(), end)}), None)
        self._steps: dict[tuple[tuple[frozenset[int], str | None], str], tuple[frozenset[int], str | None]] = {}
        self._remembered = 0

    def matches(self, name: str) -> bool:
        return finish(self.matches_in_steps(name))

    def matches_in_steps(self, name: str) -> Steps[bool]:
        """The same in steps, because each character may lead to a thousand places if the expression is large."""
        at: tuple[frozenset[int], str | None] = self._begin
        for character in name:
            step = at, character if character in _ASCII else _OTHER
            following = self._steps.get(step)
            if following is None:
                following = self._step(*step)
                self._remember(step, following)
                yield 1 + len(at[0]) // 4
            at = following
            if not at[0]:
                return False
        places, before = at
        yield 1 + len(name) // 20
        return self._end in self._reached(places, before, None)

    def forget_steps(self) -> None:
        """Empty the cache: no name will be matched for a while."""
        self._steps = {}
        self._remembered = 0

    def _remember(
        self, step: tuple[tuple[frozenset[int], str | None], str], following: tuple[frozenset[int], str | None]
    ) -> None:
        self._remembered += 1 + len(following[0])
        if self._remembered > _REMEMBERED_MAX:
            self.forget_steps()
        self._steps[step] = following

    def _step(self, at: tuple[frozenset[int], str | None], character: str) -> tuple[frozenset[int], str | None]:
        following: set[int] = set()
        places, before = at
        for place in self._reached(places, before, character):
            kind, exits = self._places[place]
            if isinstance(kind, _Characters) and character in kind.characters:
                following.update(exits)
        return frozenset(following), character

    def _reached(self, places: Iterable[int], before: str | None, after: str | None) -> set[int]:
        """These places, and all that can be reached from them without reading a character."""
        closure = set(places)
        waiting = list(closure)
        while waiting:
            kind, exits = self._places[waiting.pop()]
            if isinstance(kind, _Characters) or (isinstance(kind, _Condition) and not kind.holds(before, after)):
                continue
            new = set(exits) - closure
            closure |= new
            waiting += new
        return closure

    # Building the NFA. Every part is built after the place to which it leads.

    def _add(self, kind: _Characters | _Condition | None, exits: tuple[int, ...]) -> int:
        if len(self._places) >= PLACES_MAX:
            raise Refused(
                INVALID_REGULAR_EXPRESSION,
                f"the expression has more than {PLACES_MAX} places once its repetitions are written out",
            )
        self._places.append((kind, exits))
        return len(self._places) - 1

    def _lay(self, node: _Node, end: int) -> int:
        """Build a part that leads to `end`; return the place where it begins."""
        match node:
            case _Sequence():
                for part in reversed(node.parts):
                    end = self._lay(part, end)
                return end
            case _Choice():
                return self._add(None, tuple([self._lay(option, end) for option in node.options]))
            case _Repeated():
                return self._lay_repeated(node, end)
            case _:
                return self._add(node, (end,))

    def _lay_repeated(self, node: _Repeated, end: int) -> int:
        if node.most is None:
            loop = self._add(None, ())
            self._places[loop] = (None, (self._lay(node.part, loop), end))
            end = loop
        else:
            after = end
            for _ in range(node.most - node.least):
                end = self._add(None, (self._lay(node.part, end), after))
        for _ in range(node.least):
            end = self._lay(node.part, end)
        return end


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise Refused(INVALID_REGULAR_EXPRESSION, f"an expression has at most {PATTERN_CHARACTERS_MAX} characters")
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            self._refuse("a closing parenthesis without an opening one")
        return node

    def _refuse(self, reason: str) -> Never:
        raise Refused(INVALID_REGULAR_EXPRESSION, f"{self._text!r} is not a regular expression: {reason}")

    def _take(self, literal: str) -> bool:
        is_next = self._text.startswith(literal, self._at)
        self._at += len(literal) * is_next
        return is_next

    def _next(self, missing: str) -> str:
        if self._at == len(self._text):
            self._refuse(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, missing: str) -> str:
        at = self._text.find(end, self._at)
        if at < 0:
            self._refuse(missing)
        begin, self._at = self._at, at + len(end)
        return self._text[begin:at]

    def _choice(self) -> _Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._take("\\Q"):
                parts += map(self._literal, self._quoted())
            else:
                parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _quoted(self) -> str:
        end = self._text.find("\\E", self._at)
        return self._until("\\E", "") if end >= 0 else self._until_the_end()

    def _until_the_end(self) -> str:
        begin, self._at = self._at, len(self._text)
        return self._text[begin:]

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        # A lazy repetition matches the same names as a greedy one.
        self._take("?")
        if self._bounds() is not None:
            self._refuse("a repetition of a repetition")
        return _Repeated(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(sign):
                return least, most
        if not self._text.startswith("{", self._at):
            return None
        inside, closed, _ = self._text[self._at + 1 :].partition("}")
        first, comma, last = inside.partition(",")
        if not closed or not _is_number(first) or (last and not _is_number(last)):
            # Then it is a literal brace.
            return None
        self._at += len(inside) + 2
        least = int(first)
        most = int(last) if last else None if comma else least
        if max(least, most or 0) > REPETITIONS_MAX or (most is not None and most < least):
            self._refuse(f"{{{inside}}} is no number of repetitions")
        return least, most

    def _atom(self) -> _Node:
        character = self._next("")
        if character in "*+?":
            self._refuse(f"nothing in front of {character}")
        match character:
            case "(":
                return self._group()
            case "[":
                return _Characters(self._class())
            case ".":
                return _Characters(_ALL)
            case "^":
                return _AT_BEGIN
            case "$":
                return _AT_END
            case "\\":
                return self._escape()
            case _:
                return self._literal(character)

    def _literal(self, character: str) -> _Characters:
        return _Characters(self._cased(frozenset(character)) & _ALL)

    def _cased(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return characters
        return characters.union(*((character.lower(), character.upper()) for character in characters))

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._refuse(f"more than {NESTING_MAX} groups in each other")
        ignored_case = self._ignores_case
        node: _Node = _Sequence(())
        if not self._take("?") or self._opens():
            node = self._choice()
            self._ignores_case = ignored_case
            if not self._take(")"):
                self._refuse("an opening parenthesis without a closing one")
        self._depth -= 1
        return node

    def _opens(self) -> bool:
        """Read what stands between `(?` and a group's content; False if it was flags without a group."""
        if self._take("P<") or self._take("<"):
            name = self._until(">", "a group's name without an end")
            if not name or not set(name) <= _WORD:
                self._refuse(f"{name!r} is no name for a group")
            return True
        switched_on = True
        while True:
            flag = self._next("a group's flags without an end")
            if flag in ":)":
                return flag == ":"
            if flag == "-" and switched_on:
                switched_on = False
            elif flag == "i":
                self._ignores_case = switched_on
            elif flag not in "msU":
                # These flags have no effect: names have no lines, and a match is always of the whole name.
                self._refuse(f"(?{flag} is not known")

    def _escape(self) -> _Node:
        character = self._next("a backslash at the end")
        if character in _CONDITIONS:
            return _CONDITIONS[character]
        if character == "C":
            return _Characters(_ALL)
        characters = self._class_escape(character)
        return _Characters(characters) if characters is not None else self._literal(self._code_point(character))

    def _class_escape(self, character: str) -> frozenset[str] | None:
        """The characters of a class such as `\\d` or `\\pL`; None if this escape is not a class."""
        if character not in "pP":
            return _CLASSES.get(character)
        name = self._until("}", "a class without an end") if self._take("{") else self._next("a class without a name")
        is_negated = (character == "P") != name.startswith("^")
        characters = _UNICODE_CLASSES.get(name.removeprefix("^"))
        if characters is None:
            self._refuse(f"class {name!r} is not known")
        return _ALL - self._cased(characters) if is_negated else self._cased(characters)

    def _code_point(self, character: str) -> str:
        """The one character of an escape that begins with a backslash and this character."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            in_braces = self._take("{")
            digits = (
                self._until("}", "a code without an end") if in_braces else self._next("a code") + self._next("a code")
            )
            return self._number(digits, 16)
        if character == "0" or (character in "1234567" and self._text[self._at : self._at + 1] in tuple("01234567")):
            digits = character
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                digits += self._next("")
            return self._number(digits, 8)
        if character.isascii() and (character.isalnum() or character == "_"):
            self._refuse(f"\\{character} is not known")
        return character

    def _number(self, digits: str, base: int) -> str:
        if not digits or not set(digits) <= set(string.hexdigits) or len(digits) > 6 or int(digits, base) > 0x10FFFF:
            self._refuse(f"{digits!r} is no character's number")
        return chr(int(digits, base))

    def _class(self) -> frozenset[str]:
        is_negated = self._take("^")
        characters = _NONE
        first = True
        while first or not self._take("]"):
            first = False
            characters |= self._class_part()
        characters = self._cased(characters) & _ALL
        return _ALL - characters if is_negated else characters

    def _class_part(self) -> frozenset[str]:
        if self._take("[:"):
            name = self._until(":]", "a class without an end")
            named = _NAMED_CLASSES.get(name.removeprefix("^"))
            if named is None:
                self._refuse(f"class {name!r} is not known")
            return _ALL - named if name.startswith("^") else named
        character = self._next("a bracket without an end")
        if character == "\\":
            character_after = self._next("a backslash at the end")
            characters = self._class_escape(character_after)
            if characters is not None:
                return characters
            character = self._code_point(character_after)
        if not self._text.startswith("-", self._at) or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return frozenset(character)
        self._at += 1
        last = self._next("a bracket without an end")
        if last == "\\":
            last = self._code_point(self._next("a backslash at the end"))
        if last < character:
            self._refuse(f"nothing lies between {character!r} and {last!r}")
        return frozenset(one for one in _ALL if character <= one <= last)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4

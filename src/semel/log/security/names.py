"""The principal of a client's certificate: the subject as text, and Kafka's rules that map it to a name. And when a
certificate expires.

    RULE:^CN=([^,]+),.*$/$1/L, DEFAULT

The text of the subject follows RFC 2253, as Java's X500Principal does, so that rules written for Apache Kafka give the
same names here: the last part of the certificate's name comes first, and an attribute without a short name is shown by
its number. Nothing here may open a file or a socket, and TLS must have verified a certificate before.
"""

import calendar
import re
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_SEQUENCE, _SET, _VERSION, _OBJECT_ID, _BMP_STRING, _LATIN_STRING = 0x30, 0x31, 0xA0, 0x06, 0x1E, 0x14
_TEXTS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", _LATIN_STRING: "latin-1", _BMP_STRING: "utf-16-be"}
_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# The forms of a time in a certificate, by their tags: years until 2049 have two digits.
_TIMES: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)")


class RulesRefused(ValueError):
    """The text is not a list of rules for principals; the message names the wrong part."""


class NoName(Exception):
    """No rule matches the subject of a certificate."""


def rules_of(text: str) -> Callable[[str], str]:
    """A function that maps a subject to a principal's name, as Apache Kafka's `ssl.principal.mapping.rules` does: the
    first rule that matches the whole subject counts. It raises `NoName` if no rule matches.
    """
    rules = list(_parsed(text)) or [_name_itself]

    def name_of(subject: str) -> str:
        for rule in rules:
            name = rule(subject)
            if name is not None:
                return name
        raise NoName(f"no rule for principals matches the subject {subject!r}")

    return name_of


def _parsed(text: str) -> Iterator[Callable[[str], str | None]]:
    text = text.strip()
    place = 0
    while place < len(text):
        match = _RULE.match(text, place)
        if match is None:
            raise RulesRefused(f"{text[place:]!r} is no rule for principals: DEFAULT is, and RULE:pattern/name/[LU]")
        place = match.end()
        separator = re.compile(r"\s*(,\s*|$)").match(text, place)
        if separator is None:
            raise RulesRefused(f"{text[place:]!r} comes after a rule for principals; a comma was expected")
        place = separator.end()
        yield _name_itself if match[1] else _rule(match[2], match[3], match[4])


def _name_itself(subject: str) -> str:
    return subject


def _rule(pattern: str, name: str, case: str) -> Callable[[str], str | None]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise RulesRefused(f"{pattern!r} is no regular expression: {error}") from None

    def apply(subject: str) -> str | None:
        if compiled.fullmatch(subject) is None:
            return None
        # As Kafka does: the rule has to match the whole subject, and then replaces what a search for it finds.
        made = compiled.sub(lambda match: _REFERENCE.sub(lambda one: _referred(one, match), name), subject)
        return made.lower() if case == "L" else made.upper() if case == "U" else made

    return apply


def _referred(reference: re.Match[str], match: re.Match[str]) -> str:
    """The text for `$1`. Of more digits, as many count as make the number of a group in the pattern; a number without a
    group stays as it is.
    """
    if reference[1] is not None:
        return str(reference[1])
    digits, group_count = str(reference[2]), match.re.groups
    number = digits
    while len(number) > 1 and int(number) > group_count:
        number = number[:-1]
    if int(number) > group_count:
        return str(reference[0])
    return (match[int(number)] or "") + digits[len(number) :]


# -- what a certificate says ----------------------------------------------------------------------------------------


class _Element(NamedTuple):
    """One element of DER: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of an X.509 certificate in DER. ValueError if it is not a certificate."""
    try:
        subject = _fields(certificate)[4]
        relative_names = [list(_elements(relative.content)) for relative in _elements(subject.content)]
        return ",".join("+".join(map(_attribute, relative)) for relative in reversed(relative_names))
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"not a certificate: {error}") from None


def expiry_of(certificate: bytes) -> int:
    """When an X.509 certificate in DER expires, in seconds since 1970. ValueError if it is not a certificate."""
    try:
        _, until = _elements(_fields(certificate)[3].content)
        return calendar.timegm(time.strptime(until.content.decode("ascii"), _TIMES[until.tag]))
    except (IndexError, KeyError, StopIteration, ValueError) as error:
        raise ValueError(f"not a certificate: {error}") from None


def _fields(certificate: bytes) -> list["_Element"]:
    """The serial number, the signature's algorithm, the issuer, the validity, the subject, and what follows."""
    ((_, certificate_content, _),) = _elements(certificate)
    to_be_signed = next(_elements(certificate_content))
    return [field for field in _elements(to_be_signed.content) if field.tag != _VERSION]


def _elements(data: bytes) -> Iterator[_Element]:
    place = 0
    while place < len(data):
        tag, length, begin = data[place], data[place + 1], place + 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[begin : begin + size])
            begin += size
        end = begin + length
        if end > len(data):
            raise ValueError("it ends too soon")
        yield _Element(tag, data[begin:end], data[place:end])
        place = end


def _attribute(attribute: _Element) -> str:
    kind, value = _elements(attribute.content)
    number = _object_id(kind.content)
    short = _SHORT_NAMES.get(number)
    if short is None or value.tag not in _TEXTS:
        return f"{short or number}=#{value.whole.hex()}"
    return f"{short}={_escaped(value.content.decode(_TEXTS[value.tag]))}"


def _object_id(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """A value as Java's X500Principal writes it. It escapes more than RFC 2253 asks for: an equals sign, too, so that a
    rule for `OU=Admins` does not match a certificate whose CN has these characters.
    """
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", text).replace("\0", "\\00")
    inner = text.strip(" \r")
    lead = text[: len(text) - len(text.lstrip(" \r"))]
    trail = text[len(lead) + len(inner) :]
    return "".join(f"\\{space}" for space in lead) + inner + "".join(f"\\{space}" for space in trail)

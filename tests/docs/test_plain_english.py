"""A reader who knows Kafka, and not semel, understands each sentence at the first reading. No test can hold that; but
some turns of phrase make sentences that have to be read twice, and this finds them: in pages, and in the docstrings,
comments and messages of the code. Pages that are written by a tool are left out: their words come from the code.
"""

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
PAGES: Final = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    if "reference" not in page.parts and not re.match("BENCHMARKS|RELIABILITY", page.name)
)
CODE: Final = [path for name in ("src", "tools", "bench", "examples") for path in sorted((ROOT / name).rglob("*.py"))]

# Where a sentence begins.
BEGINNING: Final = r"(?:^|(?<=[.:;!?] ))"
# A turn, and what to write instead.
TURNS: Final = {
    r"\b[Ww]ho(m|se)?ever\b": "name the actor: the client, the caller, the next worker",
    rf"{BEGINNING}(And |But )?Who [^.?!\n]*[.!;]|\b[Oo]nly who\b": "name the actor: a worker that dies, only a writer",
    r"\bof (which|whom) (nobody|no one|none|nothing)\b": "make a sentence of it, with its subject first",
    rf"{BEGINNING}Of (the|each|all|what|which|an?|one|two|it|this|that|them|these|those)\b": "put the subject first",
    r"\b[Ww]hat(ever)? (is|was|lies) there\b|\b[Ww]hat there (is|was)\b": "name the thing: the records, the options",
    r"\b(is|are|was|were) there (once|twice|again)\b": "is stored once, is stored twice, is repeated",
    r"\b[Ii]n vain\b": "say what failed",
    r"\b(say|says|said|hear|hears) nothing\b|\b[Nn]othing of\b": "say what is missing: 'does not name'",
    r"\b[Aa]ll but\b|\b[Aa]ll else\b": "except; everything else",
    r"\b[Bb]e it (by|a|the|in|from)\b": "whether ... or",
    r", for (it|they|nobody|he|nothing)\b": "because",
    r"\b(comes?|came|becomes?|became) of\b": "say what happens, or what the result is",
    r"\b[Ll]ets? go\b": "release, forget, delete",
    r"\bhears? of\b": "learn, receive, be told",
    r"\bto be had\b": "available",
    r"\btakes? it that\b": "assume",
    r"\bof ours\b": "our",
    r"\banew\b": "again; a topic is recreated, partitions are reassigned",
    r"\b[Bb]ut for\b": "except, without, unless",
    rf"{BEGINNING}Else\b": "otherwise",
    rf"{BEGINNING}To be \w+ed\b": "say who does it",
    r"\b([Ff]or|from|than|[Tt]o) who \w+": "name the actor: a caller that, a client that",
    r"\b[Bb]usiness of\b": "say who does it: `core` decides, the caller commits",
    r"\b[Mm]akes? an entry true\b": "apply an entry",
    r"\b(?<!far )[Bb]ehind (it|them|this|that|these|those|each|what|one|the (end|last|first|checkpoint))\b": "after it",
    rf"{BEGINNING}So (few|many|much)\b|\b(most|next|first) so many\b|\bso many at most\b": "name the number",
    r"\bin the place of\b": "in place of, instead of",
    r"\b(is|are|was|were) not read from\b": "the broker does not read from it",
    r"\bfor so long\b|\bwaits? so long\b": "for this time",
    r"\bof (yours|theirs)\b|\bof (the|an?) (caller|user|driver|query|relay|session)'s( own)?[.,;]": "the caller's",
    r"\b[Nn]othing any more\b": "nothing more",
    r"\bread off\b": "made from, taken from",
    r"\b(is|are|was|were|length|sent|offsets) held against\b|\band held against\b": "compared with, checked against",
    rf"{BEGINNING}Whom\b[^?\n]*[.;!]": "the user whom",
    rf"{BEGINNING}Once each\b": "each is answered once",
    r"\b(stands?|stood) in every checkpoint\b": "every checkpoint contains it",
    r"\bwould not take it\b|\bnot taken in\b": "refuses it",
    r"\b(is|are) to be had\b|\bmakes? way\b": "say who does it",
    r"[,;] else\b": "otherwise",
    r"\b[Mm]arks? of deletion\b": "tombstone",
    r"\b(is|are) told (by its name|beside|as such)\b": "the page shows it, the message names it",
    r"\b(None|True|False) where\b": "None if",
    r"\bthat (it|they) (was|were) handed\b": "the caller's transaction, the caller's options",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def of_page(text: str) -> list[str]:
    """The paragraphs of a page, without what is code."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    parts = re.split(r"\n\s*\n|\n(?=\s*[-|>])|^#+ (.*)$| \| ", text, flags=re.MULTILINE)
    return [" ".join(part.split()).lstrip("-|> ") for part in parts if part]


def of_code(text: str) -> list[str]:
    """The docstrings and the messages of a module, which are the strings of more than one word, and its comments."""
    constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    strings = [" ".join(value.split()) for value in constants if isinstance(value, str) and " " in value]
    return strings + comments_of(text)


def comments_of(text: str) -> list[str]:
    """The comments of a module; those on lines that follow each other are one."""
    comments: list[str] = []
    line_after = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("# ")
            stands_alone = token.line.strip().startswith("#")
            if stands_alone and token.start[0] == line_after:
                comments[-1] += f" {words}"
            else:
                comments.append(words)
            line_after = token.start[0] + 1
    return comments


def turns(paragraphs: list[str]) -> list[str]:
    """Each turn, with some words around it to find it by, and what to write instead."""
    # All at once, a paragraph to a line, because most of the time would go into calling.
    text = "\n".join(paragraphs)
    return [
        f"{text[max(0, match.start() - 30) : match.end() + 30]} -> {instead}"
        for turn, instead in TURNS.items()
        for match in re.finditer(turn, text, re.MULTILINE)
    ]


def test_no_page_uses_one_of_the_turns() -> None:
    assert [(name_of(page), use) for page in PAGES for use in turns(of_page(page.read_text()))] == []


def test_no_docstring_comment_or_message_uses_one_of_the_turns() -> None:
    assert [(name_of(path), use) for path in CODE for use in turns(of_code(path.read_text()))] == []


def test_comments_are_read_as_the_sentences_that_they_are() -> None:
    """A sentence may go on on the next line; a comment behind code is one by itself."""
    code = "# The client comes back, who\n# ever it is.\nx = 1  # In use.\ny = 2  # Not in use.\n"
    assert comments_of(code) == ["The client comes back, who ever it is.", "In use.", "Not in use."]


def test_the_turns_are_found_where_they_are() -> None:
    """The left column of the table from which the turns were taken; none of them may slip through."""
    for sentence in (
        "All but the first work with Apache Kafka as well",
        "Of the last epoch nobody must hear",
        "what was answered in vain is there again",
        "a number says nothing of a batch whose answer came before it was safe",
        "Who says nothing has what there is.",
        "Only who writes hears that he was fenced",
        "the entries behind the checkpoint",
    ):
        assert turns([sentence]), sentence
    for sentence in (
        "Who may read the log?",
        "the client, who has asked before,",
        "Some of the records expired.",
        "The relay is far behind it.",
    ):
        assert turns([sentence]) == [], sentence

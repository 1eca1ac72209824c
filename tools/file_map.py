"""Writes docs/reference/files.md: each room of semel, and each module at a door, with the first sentence it says about
itself.

Run by `make map`; a test holds the result against the files. It must never say anything a module does not say itself.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/semel"
DOORS = {PACKAGE, PACKAGE / "log"}
DOCUMENT = ROOT / "docs/reference/files.md"
HEAD = """# Files

<!-- Written by `make map`. -->

Each room of semel, and each module at a door, with the first sentence that it says of itself.
[Architecture](../ARCHITECTURE.md) shows how they work together.

"""


def first_sentence(path: Path) -> str:
    words = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(words.split("\n\n")[0].split())
    ended = re.match(r".*?[.!?](?= |$)", paragraph)
    return (ended[0] if ended else paragraph).replace("|", "\\|")


def file_map() -> str:
    lines = []
    paths = [*PACKAGE.rglob("*.py")]
    shown = [path for path in paths if path.name == "__init__.py" or path.parent in DOORS]
    for path in sorted(shown, key=lambda p: (p.parent.parts, p.name != "__init__.py", p.name)):
        name = path.relative_to(PACKAGE).as_posix()
        if path.name == "__init__.py" and path.parent != PACKAGE:
            lines.append(f"| **`{name.removesuffix('__init__.py')}`** | **{first_sentence(path)}** |\n")
        else:
            lines.append(f"| `{name}` | {first_sentence(path)} |\n")
    return HEAD + "| in `src/semel/` | what it says of itself |\n|---|---|\n" + "".join(lines)


if __name__ == "__main__":
    DOCUMENT.write_text(file_map())

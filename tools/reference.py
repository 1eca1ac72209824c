"""Writes the reference pages that can be made from the code: commands, APIs and versions, topic configurations, limits.

Run by `make map` from the root of the repository; a test holds the pages against the code. A page written here is never
edited by hand.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import semel
from semel.log.broker.apis import APIS, HANDLERS
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exposition import exposition
from semel.log.broker.limits import Limits
from semel.log.core.configs import DEFINITIONS, Number, Share
from semel.spark.lanes import options as lane_options
from semel.spark.source.options import OPTIONS
from semel.spark.source.rows import COLUMNS
from semel.ui.cli import COMMANDS, lab
from semel.wire.errors import ErrorCode

sys.path.insert(0, str(Path(__file__).parent))

from products import PRODUCTS, Product

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
EXAMPLES = ROOT / "docs" / "examples"
GENERATED = "<!-- Written by `make map`; change the code, not this page. -->\n"
LARGEST = 2**31 - 1


def pages() -> dict[Path, str]:
    """Every generated page and what it should hold."""
    return {
        PAGES / "cli.md": command_line(),
        PAGES / "protocol.md": protocol(),
        PAGES / "topic-configurations.md": topic_configurations(),
        PAGES / "limits.md": limits(),
        PAGES / "metrics.md": metrics(),
        PAGES / "spark-source.md": spark_source(),
        PAGES / "spark-log-sink.md": spark_log_sink(),
    }


def command_line() -> str:
    sections = [line for name, purpose in COMMANDS.items() for line in command(name, purpose)]
    return "\n".join(
        [
            "# The command line",
            "",
            GENERATED,
            "`semel COMMAND --help` says the same at the terminal. An error is one line on standard error. The",
            "exit code is 0 when a command did what it was asked, 1 when it could not, 2 when it was called wrongly,",
            "130 after Ctrl-C and 143 after SIGTERM.",
            "",
            *sections,
        ]
    )


def command(name: str, purpose: str) -> Iterator[str]:
    module = importlib.import_module(f"semel.ui.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"semel {name}")
    module.configure(parser)
    yield from (f"## semel {name}", "", f"{purpose[0].upper()}{purpose[1:]}.", "")
    yield from ("```", *(line.removeprefix("  ") for line in module.EXAMPLE.splitlines()), "```", "")
    yield from arguments(parser)
    if name == "lab":
        yield from lab_example()


def arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What a command takes, as a table; a command of commands has one table for each of them."""
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            purposes = {choice.dest: choice.help for choice in action._choices_actions}
            for name, own in action.choices.items():
                yield from (f"`{parser.prog} {name}`: {purposes[name]}", "")
                yield from arguments(own)
        elif action.dest != "help" and action.help != argparse.SUPPRESS:
            value = str(action.metavar or "|".join(map(str, action.choices or ()))).replace("|", "\\|")
            words = [f"{option} {value}" if value and action.nargs != 0 else option for option in action.option_strings]
            rows.append(f"| {', '.join(f'`{word}`' for word in words or [value])} | {action.help or ''} |")
    if rows:
        yield from ("| | |", "|---|---|", *rows, "")


def lab_example() -> Iterator[str]:
    """The example with the answer after each command, as a test has seen it."""
    answers = iter((EXAMPLES / "lab.out").read_text().splitlines())
    lines = (EXAMPLES / "lab.txt").read_text().splitlines()
    width = max(len(line) for line in lines if not line.startswith("#"))
    yield from ("The commands of the lab, one on a line:", "", "```", lab.COMMANDS, "```", "")
    yield "A line that is none of them gets one line in answer, and the lab goes on; the exit code is 1 in the end,"
    yield from ("unless the lines were typed at its prompt.", "")
    yield from ("What [`docs/examples/lab.txt`](../examples/lab.txt) says, and what the lab answers:", "", "```")
    yield from (f"{line:{width}}  {next(answers)}" if line and not line.startswith("#") else line for line in lines)
    yield from ("```", "")


def protocol() -> str:
    rows = [" | ".join((f"| {key}", *cells(api), purpose(key), "")).rstrip() for key, api in APIS.items()]
    return "\n".join(
        [
            "# The protocol that is served",
            "",
            GENERATED,
            "What ApiVersions announces. Every version in a range works; what is not here is not announced. A client",
            "that lacks all rights of an API is told that it lacks the first one, or is shown nothing.",
            "",
            "What a standby does with a request:",
            "",
            *(f"- {word(here)}: it {meaning(here)}." for here in Here),
            "- forwards: where nobody has to log in, it asks the active broker, and does the other thing only if that",
            "  one does not answer.",
            "",
            f"Before a login a client may send {names(api for api in APIS.values() if api.before_login)}.",
            "A broker that hands over answers these when the next one is active:",
            f"{names(api for api in APIS.values() if api.asks_who)}.",
            "",
            "| key | API | versions | rights | a standby | |",
            "|---:|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def names(apis: Iterable[Api]) -> str:
    *others, last = [api.name for api in apis]
    return f"{', '.join(others)} and {last}"


def rights(api: Api) -> str:
    return ", ".join(f"{right.operation.name} {right.resource_type.name}" for right in api.rights) or "none"


def cells(api: Api) -> Iterator[str]:
    yield from (api.name, f"{api.served[0]}-{api.served[-1]}", rights(api))
    yield word(api.standby) + ", forwards" * api.forwards


def word(here: Here) -> str:
    return here.value.name if isinstance(here.value, ErrorCode) else here.name.lower().replace("_", " ")


def meaning(here: Here) -> str:
    return "answers with this error" if isinstance(here.value, ErrorCode) else here.value


def purpose(key: int) -> str:
    """What the handler's module says after the colon of its first sentence."""
    module = HANDLERS[key].__module__
    text = (ROOT / "src" / (module.replace(".", "/") + ".py")).read_text()
    sentence = text.split('"""')[1].split("\n\n")[0].replace("\n", " ")
    return sentence.partition(": ")[2]


def topic_configurations() -> str:
    rows = []
    for definition in DEFINITIONS.values():
        if isinstance(definition, Number):
            least = definition.minimum
            allowed = f"{least} or more" if definition.maximum >= LARGEST else f"{least} to {definition.maximum}"
        elif isinstance(definition, Share):
            allowed = "0 to 1"
        else:
            allowed = ", ".join(f"`{word}`" for word in definition.allowed)
        rows.append(f"| `{definition.name}` | `{definition.default}` | {allowed} | {definition.documentation} |")
    return "\n".join(
        [
            "# Topic configurations",
            "",
            GENERATED,
            "Configurations that a topic takes when it is made or altered. Any other name is refused, by that name.",
            "",
            "| name | default | values | |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def limits() -> str:
    reasons = dict(_reasons((ROOT / "src/semel/log/broker/limits.py").read_text()))
    rows = [f"| `{field.name}` | {field.default:,} | {reasons[field.name]} |" for field in fields(Limits)]
    return "\n".join(
        [
            "# Limits",
            "",
            GENERATED,
            "Nothing a client sends makes the broker grow beyond these. `semel serve --limit NAME=VALUE` changes one.",
            "",
            "| name | default | |",
            "|---|---:|---|",
            *rows,
            "",
            "## Where limits multiply",
            "",
            "What is done in one turn of the event loop holds up all other clients. Here is what walks through a",
            "collection in one turn, how large that may be, and how many steps of Python it takes then at most: a",
            "million steps take some 20 ms. Tests count them. Everything else is done in many turns.",
            "",
            "| what | where | limits | the most | steps |",
            "|---|---|---|---|---:|",
            *map(_product, PRODUCTS),
            "",
        ]
    )


def _product(product: Product) -> str:
    names = ", ".join(f"`{name}`" for name in product.limits)
    return f"| {product.name} | {product.path} | {names} | {product.corner} | {product.steps_max:,} |"


def metrics() -> str:
    """As a broker shows them that has just begun; a histogram's samples begin with its name."""
    with semel.broker() as broker:
        shown = exposition(broker._broker)
    rows = []
    for name, text, kind in re.findall(r"^# HELP (\w+) (.*)\n# TYPE \w+ (\w+)$", shown, re.MULTILINE):
        labels = dict.fromkeys(re.findall(rf'^{name}{{(\w+="\w+")}}', shown, re.MULTILINE))
        rows.append(f"| `{name}` | {kind} | {text}{' ' if labels else ''}{', '.join(f'`{one}`' for one in labels)} |")
    return "\n".join(
        [
            "# Metrics",
            "",
            GENERATED,
            "What `semel serve --metrics HOST:PORT` serves under `/metrics`, in Prometheus' text format. Counters",
            "begin at 0 with each start. What to alert on: [Operate a broker](../how-to/watch.md#the-broker).",
            "Beside it, `/decisions` tells [each verdict](../how-to/watch.md#watch-the-verdicts) as it falls.",
            "",
            "| name | kind | |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def spark_source() -> str:
    options = [f"| `{option.name}` | {option.default} | {option.documentation} |" for option in OPTIONS]
    columns = [f"| `{name}` | `{kind.simpleString()}` |" for name, kind in COLUMNS.items()]
    return "\n".join(
        [
            "# The Spark source",
            "",
            GENERATED,
            'Options of `spark.readStream.format("semel")` and `spark.read.format("semel")`. Names have no case. Any',
            "other option is refused, by its name. What to do with them: [Read the log with",
            "Spark](../how-to/spark-source.md).",
            "",
            "| name | default | |",
            "|---|---|---|",
            *options,
            "",
            "## Columns",
            "",
            "`headers` is there with `includeHeaders`, the last three with `includeProducer`; a schema that is given",
            "may name any of them.",
            "",
            "| name | type |",
            "|---|---|",
            *columns,
            "",
        ]
    )


def spark_log_sink() -> str:
    options = [f"| `{option.name}` | {option.default} | {option.documentation} |" for option in lane_options.OPTIONS]
    return "\n".join(
        [
            "# The Spark sink into the log",
            "",
            GENERATED,
            'Options of `df.writeStream.format("semel")` and `df.write.format("semel")`. Names have no case. Any other',
            "option is refused, by its name. What to do with them: [Write into the log with",
            "Spark](../how-to/spark-log-sink.md).",
            "",
            "| name | default | |",
            "|---|---|---|",
            *options,
            "",
        ]
    )


def _reasons(source: str) -> Iterator[tuple[str, str]]:
    """Each limit with the comment above it; limits that share one comment share the reason."""
    comment: list[str] = []
    fresh = False
    for line in source.splitlines():
        if line.startswith("    # "):
            comment = [*comment, line.strip("# ")] if fresh else [line.strip("# ")]
            fresh = True
        elif match := re.match(r"    (\w+): int = ", line):
            fresh = False
            yield match.group(1), " ".join(comment)


def main() -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, content in pages().items():
        path.write_text(content)


if __name__ == "__main__":
    main()

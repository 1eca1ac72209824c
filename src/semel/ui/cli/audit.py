"""`semel audit`: does every sink have all events of the source, exactly once? It names each lost and each doubled id.

The exit code is 0 if so, 1 if not, and 2 if the audit is impossible, because an address is wrong or cannot be read.
This command must never write to a source or a sink.
"""

import argparse
import json
import re
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from semel.ui.cli.databases import warn_of_password
from semel.ui.cli.display import print_table, while_somebody_reads
from semel.ui.cli.errors import Failure
from semel.ui.cli.progress import Progress
from semel.ui.cli.settings_file import read_client_settings
from semel.ui.cli.subcommands import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.audit import Counted, Finding, Findings, SinkVerdict, TotalsVerdict, Verdict
    from semel.audit.reader_check import ReaderVerdict

EXAMPLE: Final = """  semel audit --source "semel://127.0.0.1:9092/payments?id=key" --sink "parquet:./out?id=event_id"
  semel audit --source "semel://127.0.0.1:9092/payments?id=value.$.id&amount=value.$.amount" \\
              --sink "postgresql://app@127.0.0.1/shop/payments?id=id&amount=amount" \\
              --sink "delta:./lake/payments?id=id&amount=amount" --sink "sqlite:./app.db/payments?id=id&amount=amount"
  semel audit parquet ./out --id event_id
  semel audit totals --source "sqlite:shop.db/orders?id=customer&time=at&amount=cents" \\
              --sink "sqlite:shop.db/totals?id=customer&time=minute&amount=cents" --count orders --window 1m

addresses:
  semel://HOST:PORT/TOPIC?id=key            key, value, header.NAME, or value.$.FIELD for what is in JSON; the committed
                                            records; kafka.security.protocol=SSL and so on as for Spark,
                                            or all of it from the file of --command-config
  parquet:DIR?id=COLUMN                     what Spark's streaming sink committed, or every file; parquet:/DIR for all
                                            of the path
  delta:DIR?id=COLUMN                       or delta:s3://BUCKET/TABLE, storage.AWS_REGION=... and so on; version=N
  iceberg:NAMESPACE.TABLE?id=COLUMN         and catalog=NAME, as pyiceberg's settings have it, or catalog.uri=... and so
                                            on; ref=BRANCH or ref=TAG; snapshot=N
  postgresql://USER@HOST/DATABASE/TABLE?id=COLUMN   or SCHEMA.TABLE; sslmode=... and so on as for libpq
  mysql://USER@HOST/DATABASE/TABLE?id=COLUMN        or mariadb://; ssl_ca=FILE and so on as for a sink
  sqlite:FILE/TABLE?id=COLUMN               or sqlite:///FILE/TABLE
  Each takes time=... and amount=..., too: for windows, and to find the same id with another amount. Two ids are the
  same if their text is: 17 in a column of numbers is 17 in a record's key."""

EXIT_CLEAN: Final = 0
EXIT_WRONG: Final = 1
EXIT_NOTHING_SAID: Final = 2

_ID_SHOWN_MAX: Final = 200
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS: Final = {
    "lost": "sent, and not there",
    "doubled": "there more often than sent",
    "foreign": "there, and never sent",
    "altered": "there, with another amount or in another window",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", metavar="ADDRESS", help="what was sent")
    parser.add_argument(
        "--sink",
        action="append",
        type=_alone,
        metavar="ADDRESS",
        help="where all of it belongs; may be given several times",
    )
    parser.add_argument(
        "--or",
        action=_Or,
        metavar="ADDRESS",
        help="another place of the sink before it, such as a quarantine: each event belongs into one of the two",
    )
    parser.add_argument(
        "--window", type=_duration, metavar="1h", help="count events in windows of this length, and name the windows"
    )
    parser.add_argument("--since", type=_time, metavar="TIME", help="only events from this time on (ISO 8601, or ms)")
    parser.add_argument("--before", type=_time, metavar="TIME", help="only events before this time")
    parser.add_argument(
        "--once", action="store_true", help="expect each event once, even if the source has it more than once"
    )
    parser.add_argument(
        "--count-without-id",
        action="store_true",
        help="accept rows without an id if each sink has as many as the source (any is an error)",
    )
    parser.add_argument(
        "--limit", type=count, metavar="N", help="name up to N ids of each kind; counts are exact (100)"
    )
    parser.add_argument("--buckets", type=count, metavar="N", help="a power of two (16384; 1024 for each window)")
    parser.add_argument("--key", metavar="HEX", help="the key of an earlier audit, to repeat it (a new one)")
    parser.add_argument(
        "--processes", type=count, metavar="N", help="how many processes count in parallel (the number of cores)"
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a client's settings for TLS and the login, with which topics are read: properties, .json or .toml",
    )
    parser.add_argument("--json", action="store_true", help="the verdict as JSON")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="add the verdict to this directory, whose history semel console --audits DIR shows",
    )
    checks = parser.add_subparsers(dest="check", metavar="[parquet DIR | totals]", title="other audits")
    check = checks.add_parser(
        "parquet",
        help="would a reader that ignores Spark's _spark_metadata see something else?",
        description="Say whether a reader of DIR that ignores _spark_metadata would see doubles or uncommitted rows.",
        allow_abbrev=False,
    )
    check.add_argument("directory", type=Path, metavar="DIR", help="the directory that a streaming query wrote")
    check.add_argument("--id", metavar="COLUMN", help="the column that identifies a row")
    # The command itself has options with the same names, which a default here would overwrite.
    check.add_argument("--limit", type=count, default=argparse.SUPPRESS, metavar="N", help="name up to N ids (100)")
    check.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="the verdict as JSON")
    totals = checks.add_parser(
        "totals",
        help="is each total of an aggregate that of its rows?",
        description="Compare an aggregate with the rows that it is of, by key, or by key and window: how many rows, "
        "and their sum. id=... is the key, time=... the time of the event or the beginning of the window.",
        allow_abbrev=False,
    )
    totals.add_argument("--source", default=argparse.SUPPRESS, metavar="ADDRESS", help="the rows")
    totals.add_argument("--sink", default=argparse.SUPPRESS, metavar="ADDRESS", help="the totals")
    totals.add_argument("--count", metavar="COLUMN", help="the column of the sink that counts rows")
    totals.add_argument(
        "--window", type=_duration, default=argparse.SUPPRESS, metavar="1m", help="the length of a window (no windows)"
    )
    totals.add_argument("--limit", type=count, default=argparse.SUPPRESS, metavar="N", help="show up to N totals (100)")
    totals.add_argument(
        "--command-config", default=argparse.SUPPRESS, metavar="FILE", help="a client's settings, as for semel audit"
    )
    totals.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="the verdict as JSON")


def run(options: argparse.Namespace) -> int:
    try:
        from semel.audit import AuditFailed
    except ImportError as error:
        return _nothing_said(str(error))
    try:
        audits = {"parquet": _check_readers, "totals": _audit_totals}
        return audits.get(options.check, _audit)(options)
    except (AuditFailed, Failure) as failure:
        return _nothing_said(str(failure))


def _nothing_said(why: str) -> int:
    print(f"semel: {why}", file=sys.stderr)
    return EXIT_NOTHING_SAID


def _audit(options: argparse.Namespace) -> int:
    from semel.audit import AuditFailed, audit
    from semel.audit.verdict import LISTED_DEFAULT

    if not options.source or not options.sink:
        raise AuditFailed("name the places to compare: --source ADDRESS --sink ADDRESS, or parquet DIR")
    for address in (options.source, *(address for sink in options.sink for address in sink)):
        warn_of_password(address)
    client = {} if options.command_config is None else read_client_settings(options.command_config)
    shown = _Shown()
    began_ms, began = time.time_ns() // 1_000_000, time.monotonic()
    try:
        verdict = audit(
            options.source,
            options.sink,
            window_ms=options.window,
            since_ms=options.since,
            before_ms=options.before,
            once=options.once,
            limit=LISTED_DEFAULT if options.limit is None else options.limit,
            buckets=options.buckets,
            key=options.key,
            processes=options.processes,
            client=client,
            count_without_id=options.count_without_id,
            progress=shown.show,
        )
    finally:
        shown.end()
    seconds = time.monotonic() - began
    kept, trouble = None, None
    try:
        # Before it is shown, because the reader of the output may go away.
        kept = None if options.keep is None else _keep(verdict, options, began_ms, seconds)
    except AuditFailed as failure:
        trouble = failure
    with while_somebody_reads():
        if options.json:
            print(json.dumps(verdict.as_json(), indent=2))
        else:
            _show(verdict, seconds)
            if kept is not None:
                print(f"kept as {kept}")
    if trouble is not None:
        raise trouble
    return EXIT_CLEAN if verdict.is_clean else EXIT_WRONG


def _keep(verdict: "Verdict", options: argparse.Namespace, began_ms: int, seconds: float) -> Path:
    from semel.audit.history import keep

    question = {
        "window_ms": options.window,
        "since_ms": options.since,
        "before_ms": options.before,
        "once": options.once,
        "count_without_id": options.count_without_id,
    }
    return keep(verdict, options.keep, began_ms=began_ms, seconds=seconds, question=question)


class _Shown:
    """Prints each step of the audit on a line of its own."""

    def __init__(self) -> None:
        self._doing: str | None = None
        self._progress: Progress | None = None

    def show(self, doing: str, done: int, total: int) -> None:
        if self._progress is None or doing != self._doing:
            self.end()
            self._doing = doing
            self._progress = Progress(doing, total, "M rows")
        self._progress.show(done)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.end()
        self._progress = None


# -- the verdict for a person ---------------------------------------------------------------------------------------


def _show(verdict: "Verdict", seconds: float) -> None:
    has_amount = verdict.source.amount is not None
    rows = [["", "rows", *_WORDS, *(["amount"] if has_amount else [])]]
    rows.append([f"source  {verdict.source.name}", f"{verdict.source.rows:,}", *[""] * 4, *_amount(verdict.source)])
    for sink in verdict.sinks:
        counts = [f"{getattr(sink, kind).rows:,}" for kind in _WORDS]
        rows.append([f"sink    {sink.sink.name}", f"{sink.sink.rows:,}", *counts, *_amount(sink.sink)])
    print_table(rows, right=True)
    for counted in (verdict.source, *(sink.sink for sink in verdict.sinks)):
        if counted.without_id:
            have, of = ("row has", "it") if counted.without_id == 1 else ("rows have", "them")
            unsaid = "" if verdict.counts_without_id else f", so nothing can be said of {of}; see --count-without-id"
            print(f"\n{counted.name}: {counted.without_id:,} more {have} no id{unsaid}")
        _show_unreadable(counted)
    for sink in verdict.sinks:
        _show_findings(sink)
    compared = sum(sink.rows_compared for sink in verdict.sinks)
    total = verdict.source.rows + sum(sink.sink.rows for sink in verdict.sinks)
    print(f"\n{total:,} rows in {seconds:.1f} s, {compared:,} of them compared id by id; key {verdict.key}")
    if not verdict.is_clean:
        print(f"NOT CLEAN: {_summary(verdict)}")
        return
    without_id = verdict.source.without_id
    counted_only = f"; {without_id:,} without an id on each side, only counted" if without_id else ""
    print(f"clean: every record is stored exactly once{counted_only}")


def _amount(counted: "Counted") -> list[str]:
    return [] if counted.amount is None else [f"{counted.plain_amount:,f}"]


def _show_findings(verdict: "SinkVerdict") -> None:
    for kind, words in _WORDS.items():
        findings = getattr(verdict, kind)
        if not findings.rows:
            continue
        of_ids = f" of {findings.ids:,} ids" if findings.ids != findings.rows else ""
        listed = len(findings.listed)
        cut = f"; the first {listed}" if listed < findings.ids else ""
        print(f"\n{verdict.sink.name}: {findings.rows:,} {kind}{of_ids} ({words}{_hint(findings)}){cut}")
        _print_ids(findings.listed)
    if verdict.windows:
        print(f"\n{verdict.sink.name}: windows that differ")
        rows = [["  window", "source", "sink"]]
        rows += [[f"  {_time_text(w.begin_ms)}", f"{w.source_rows:,}", f"{w.sink_rows:,}"] for w in verdict.windows]
        print_table(rows, right=True)


def _hint(lost: "Findings") -> str:
    """What to do if ids are stored less often than they were sent because that was wanted."""
    if not lost.repeats:
        return ""
    how_many = "all" if lost.repeats == lost.rows else f"{lost.repeats:,}"
    return f"; {how_many} of them repeat an id that is there: --once expects each id once"


def _print_ids(findings: "Sequence[Finding]") -> None:
    """Print the ids, one to a line. On a terminal a long id is cut."""
    for finding in findings:
        length = len(finding.text)
        text = finding.text if length <= _ID_SHOWN_MAX else f"{finding.text[:_ID_SHOWN_MAX]}... ({length:,} characters)"
        print(f"  {text}" + (f"  ({finding.rows} times)" if finding.rows > 1 else ""))


def _show_unreadable(counted: "Counted") -> None:
    rows, listed = counted.unreadable.rows, counted.unreadable.listed
    if rows:
        cut = f"; the first {len(listed)}" if sum(finding.rows for finding in listed) < rows else ""
        whose = f"{rows:,} {'row' if rows == 1 else 'rows'} whose time or amount cannot be read"
        print(f"\n{counted.name}: {whose}, so nothing can be said of it{cut}")
        _print_ids(listed)


def _summary(verdict: "Verdict") -> str:
    wrong = {kind: sum(getattr(sink, kind).rows for sink in verdict.sinks) for kind in _WORDS}
    counted = [verdict.source, *(sink.sink for sink in verdict.sinks)]
    if verdict.counts_without_id:
        apart = (abs(sink.sink.without_id - sink.without_id_expected) for sink in verdict.sinks)
        wrong["without an id on one side only"] = sum(apart)
    else:
        wrong["without an id"] = sum(one.without_id for one in counted)
    wrong["unreadable"] = sum(one.unreadable.rows for one in counted)
    return ", ".join(f"{rows:,} {kind}" for kind, rows in wrong.items() if rows)


def _time_text(at_ms: int | None) -> str:
    if at_ms is None:
        return "without a time"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


# -- readers of a directory -----------------------------------------------------------------------------------------


def _check_readers(options: argparse.Namespace) -> int:
    from semel.audit.reader_check import check_readers
    from semel.audit.verdict import LISTED_DEFAULT

    limit = LISTED_DEFAULT if options.limit is None else options.limit
    verdict = check_readers(options.directory, options.id, limit=limit)
    with while_somebody_reads():
        if options.json:
            print(json.dumps(verdict.as_json(), indent=2))
        else:
            _show_readers(verdict)
    return EXIT_CLEAN if verdict.is_clean else EXIT_WRONG


def _show_readers(verdict: "ReaderVerdict") -> None:
    if not verdict.has_log:
        print(f"{verdict.directory}: no _spark_metadata; every reader sees the same {verdict.rows_seen:,} rows")
        return
    rows: list[list[Any]] = [
        ["", "files", "rows"],
        ["committed", f"{verdict.committed_files:,}", f"{verdict.committed_rows:,}"],
        ["seen by a reader that ignores _spark_metadata", f"{verdict.files_seen:,}", f"{verdict.rows_seen:,}"],
    ]
    print_table(rows, right=True)
    for title, paths, total in (
        ("not committed", verdict.uncommitted, verdict.uncommitted_count),
        ("committed, and not there", verdict.missing, verdict.missing_count),
    ):
        if total:
            cut = f"; the first {len(paths)}" if len(paths) < total else ""
            print(f"\n{total:,} {'file' if total == 1 else 'files'} {title}{cut}")
            for path in paths:
                print(f"  {path}")
    if verdict.ids is not None:
        for sink in verdict.ids.sinks:
            _show_findings(sink)
    print()
    print("clean: every reader sees the same rows" if verdict.is_clean else f"NOT CLEAN: {verdict.summary}")


# -- the totals of an aggregate -------------------------------------------------------------------------------------


def _audit_totals(options: argparse.Namespace) -> int:
    from semel.audit import AuditFailed, audit_totals
    from semel.audit.verdict import LISTED_DEFAULT

    if not options.source or not options.sink or isinstance(options.sink, list):
        raise AuditFailed("name the rows and the totals: semel audit totals --source ADDRESS --sink ADDRESS")
    for address in (options.source, options.sink):
        warn_of_password(address)
    verdict = audit_totals(
        options.source,
        options.sink,
        count=options.count,
        window_ms=options.window,
        limit=LISTED_DEFAULT if options.limit is None else options.limit,
        client={} if options.command_config is None else read_client_settings(options.command_config),
    )
    with while_somebody_reads():
        if options.json:
            print(json.dumps(verdict.as_json(), indent=2))
        else:
            _show_totals(verdict)
    return EXIT_CLEAN if verdict.is_clean else EXIT_WRONG


def _show_totals(verdict: "TotalsVerdict") -> None:
    if verdict.wrong:
        cut = f"; the first {len(verdict.wrong)}" if len(verdict.wrong) < verdict.wrong_count else ""
        said = "total is not that of its rows" if verdict.wrong_count == 1 else "totals are not those of their rows"
        print(f"{verdict.sink}: {verdict.wrong_count:,} {said}{cut}")
        rows = [["  key", "window", "rows", "count", "sum of the rows", "sum"]]
        for wrong in verdict.wrong:
            numbers = zip(wrong.expected or (None, None), wrong.stored or (None, None), strict=True)
            shown = [_number_shown(number) for pair in numbers for number in pair]
            rows.append([f"  {wrong.key}", wrong.window or "", *shown])
        print_table(rows, right=True)
    if verdict.skipped:
        print(f"{verdict.skipped:,} rows have no key, no time, or an amount that cannot be read: they are in no total")
    print(f"{verdict.rows:,} rows of {verdict.source} and {verdict.totals:,} totals of {verdict.sink}")
    print("clean: every total is that of its rows" if verdict.is_clean else "NOT CLEAN")


def _number_shown(number: Decimal | int | None) -> str:
    return "" if number is None else f"{Decimal(number).normalize():,f}"


# -- arguments ------------------------------------------------------------------------------------------------------


def _alone(address: str) -> tuple[str]:
    return (address,)


class _Or(argparse.Action):
    """Adds another place to the sink that was named last."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, value: Any, option_string: object = None
    ) -> None:
        if not options.sink:
            parser.error("--or names another place of a sink: put it after a --sink")
        options.sink[-1] = (*options.sink[-1], value)


def _duration(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d{0,9})(ms|s|m|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time such as 30s, 5m, 1h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]


def _time(text: str) -> int:
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-01-31T12:00:00Z, or milliseconds") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

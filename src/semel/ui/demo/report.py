"""`demo-report.html`: the demo's figures, on one page that needs no other file and no network.

All figures come from `figures`; the page also contains them as JSON, for programs. This file must never count anything
itself.
"""

import json
from collections.abc import Iterable
from html import escape
from importlib import resources
from importlib.metadata import metadata
from string import Template
from typing import Any, Final

from semel import __version__, settings
from semel.chaos.plan import Fault
from semel.settings import Semantics
from semel.ui.charts.drawing import SENT_SHARE, colours
from semel.ui.demo import charts
from semel.ui.demo.figures import COLUMNS, Figures, Pipeline
from semel.ui.demo.stream import OWN_SETTINGS, Run, Stream
from semel.ui.demo.timetable import HANG_SECONDS

_GLYPHS: Final = {Fault.DROP_ACK: "&#9661;", Fault.CUT: "&#10005;"}
_READOUT: Final = "Point at a column, or use the arrow keys, to see the payments of that tenth of a second."


class _Page(Template):
    """Names are in double braces, because a page has dollars and single braces of its own."""

    delimiter = "{{"
    pattern = r"\{\{(?:(?P<escaped>\{\{)|(?P<named>[a-z_]+)\}\}|(?P<braced>(?!))|(?P<invalid>))"  # type: ignore[assignment]


def write(figures: Figures, command: str) -> str:
    """The whole page."""
    page = _Page(resources.files("semel.ui.demo").joinpath("report.html").read_text(encoding="utf-8"))
    stream = figures.stream
    return page.substitute(
        colours=colours(),
        seed=str(figures.seed),
        title=f"{len(stream.payments):,} payments, {len(stream.strikes)} faults, three ways to send them",
        contents=_contents(figures),
        links=_links(),
        lead=_lead(figures),
        verdict=_verdict(figures),
        verdict_class="" if figures.held else " broken",
        tiles="".join(_tile(run, stream) for run in stream.runs),
        hang_seconds=f"{HANG_SECONDS:g}",
        strip="".join(_strip(stream)),
        fates="".join(_fate(run, stream) for run in stream.runs),
        axis=_axis(stream.seconds),
        readout=_READOUT,
        waits_legend=_legend((run.semantics, run.semantics) for run in stream.runs),
        waits=_waits(stream),
        pipeline=_pipeline(figures),
        table=_table(figures),
        own_settings=", ".join(f"<code>{escape(name)}={value}</code>" for name, value in OWN_SETTINGS.items()),
        bundles="".join(_bundle(semantics) for semantics in Semantics),
        refused=_refused(figures),
        command=escape(command),
        footer=f"Written by semel {escape(__version__)}. No script, font or picture of this page comes from elsewhere.",
        json=json.dumps(as_json(figures)).replace("<", "\\u003c"),
    )


def as_json(figures: Figures) -> dict[str, Any]:
    """The figures for programs, including those of the table."""
    stream = figures.stream
    return {
        "seed": figures.seed,
        "held": figures.held,
        "seconds": stream.seconds,
        "faults": [{"at_seconds": strike.at_seconds, "fault": strike.fault} for strike in stream.strikes],
        "runs": [
            {"semantics": run.semantics, "columns": [one._asdict() for one in charts.bins(run, stream)]}
            for run in stream.runs
        ],
        "table": [
            {"section": section, "name": row.name, **dict(zip(COLUMNS, row.cells(), strict=True))}
            for section, rows in figures.sections()
            for row in rows
        ],
    }


def _contents(figures: Figures) -> str:
    parts = {
        "faults": "the faults",
        "waits": "the waits",
        "pipeline": "the pipeline",
        "figures-of-the-run": "the figures",
    }
    parts["settings"] = "the settings"
    if figures.pipeline is None:
        del parts["pipeline"]
    return ", ".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in parts.items())


def _links() -> str:
    """The links in the package's metadata; without any, the directory of the tutorials."""
    urls = [url.partition(", ") for url in metadata("semel").get_all("Project-URL") or []]
    links = [f'<a href="{escape(url)}">{escape(name)}</a>' for name, _, url in urls]
    return ", ".join(links) or "the tutorials in <code>docs/tutorials</code>"


def _lead(figures: Figures) -> str:
    stream = figures.stream
    way = (
        f"One stream of payments, {stream.per_second:,} a second for {stream.seconds:g} seconds, through a network "
        f"that loses ACKs, cuts connections and hangs once for {HANG_SECONDS:g} s. Three clients send it side by side, "
        "under the same faults at the same moments; all that differs is how they are set."
    )
    if figures.pipeline is None:
        return f"{way} The pipeline on Spark did not run: {escape(figures.why_no_pipeline)}."
    return f"{way} Then Spark carries what arrived to the last row, whichever process is killed on the way."


def _verdict(figures: Figures) -> str:
    if not figures.held:
        return "A promise was broken: see the figures"
    whole = " from the log to the last row" if figures.pipeline is not None else ""
    return f"Exactly once{whole}: 0 lost, 0 doubled"


def _tile(run: Run, stream: Stream) -> str:
    absorbed = f"{stream.absorbed:,} repeated batches were known again, and written once."
    count, kind, explanation = {
        Semantics.AT_MOST_ONCE: (run.lost, "lost", "Sent once, and never again: what met a fault is gone."),
        Semantics.AT_LEAST_ONCE: (
            run.doubled,
            "doubled",
            "Sent until an answer came: if only the answer was lost, the payment is stored twice.",
        ),
        Semantics.EXACTLY_ONCE: (run.lost + run.doubled, "lost or doubled", absorbed),
    }[run.semantics]
    kind_of = {"lost": "is-lost", "doubled": "is-doubled"}.get(kind, "is-even" if count == 0 else "is-lost")
    return (
        f'<li class="tile"><h3>{run.semantics}</h3><div class="figure {kind_of}">{count:,} <small>{kind}</small></div>'
        f"<p>{explanation}</p></li>"
    )


def _strip(stream: Stream) -> Iterable[str]:
    for strike in stream.strikes:
        left = 100 * strike.at_seconds / stream.seconds
        if strike.fault is Fault.HANG:
            width = 100 * HANG_SECONDS / stream.seconds
            yield f'<span class="hang" style="left:{left:.2f}%;width:{width:.2f}%">hangs</span>'
        else:
            title = f"{charts.MARKS[strike.fault]} at {strike.at_seconds:.2f} s"
            yield f'<span style="left:{left:.2f}%" title="{title}">{_GLYPHS[strike.fault]}</span>'


def _fate(run: Run, stream: Stream) -> str:
    level = 100 * (1 - SENT_SHARE)
    counts = ", ".join(f"{count:,} {what}" for count, what in ((run.lost, "lost"), (run.doubled, "doubled")) if count)
    return (
        f'<div class="lane"><div class="name">{run.semantics}<span>{counts or "0 lost, 0 doubled"}</span></div>'
        f'<div class="plot" tabindex="0" role="group" aria-label="{run.semantics}, over time">'
        f"{charts.fate_chart(run, stream)}"
        f'<span class="scale" style="top:{level:.1f}%">{stream.per_second:,} sent/s</span>{_doubled_scale(run, stream)}'
        '<div class="cursor"></div>'
        "</div></div>"
    )


def _doubled_scale(run: Run, stream: Stream) -> str:
    """The number at the highest orange column, if the chart has one."""
    most = charts.most_doubled(stream)
    has_doubles = any(one.doubled for one in charts.bins(run, stream))
    return f'<span class="scale is-doubled" style="top:0;transform:none">{most:,} again</span>' if has_doubles else ""


def _waits(stream: Stream) -> str:
    slowest = max((wait for run in stream.runs for _, wait in charts.latencies(run, stream)), default=1.0)
    marks = [mark for mark in charts.ticks(slowest, 4) if mark]
    scales = "".join(
        f'<span class="scale" style="top:{100 * (1 - mark / slowest):.1f}%">{mark:g} s</span>' for mark in marks
    )
    return charts.latency_chart(stream, slowest) + scales


def _axis(seconds: float) -> str:
    marks = charts.ticks(seconds)
    return "".join(f'<span style="left:{100 * mark / seconds:.2f}%">{mark:g} s</span>' for mark in marks)


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<li><span class="swatch stroke {kind}"></span>{escape(name)}</li>' for kind, name in entries)


def _pipeline(figures: Figures) -> str:
    pipeline = figures.pipeline
    if pipeline is None:
        return ""
    legend = _legend((f"sink-{number}", name) for number, name in enumerate(pipeline.growth))
    happenings = "".join(
        f'<li><time>{one.at_seconds:.1f} s</time><span class="{"faint" if one.kind == "life" else "done"}">'
        f"{escape(one.text)}</span></li>"
        for one in pipeline.happenings
    )
    return f"""<section aria-labelledby="pipeline">
<h2 id="pipeline">From the log to the last row</h2>
<p>A Spark query reads what the at-least-once client wrote, its doubles and all, and deduplicates it by the numbers that
the tills gave their payments. Each micro-batch goes to every sink once, although somebody is killed again and
again: vertical lines.</p>
<ul class="legend">{legend}</ul>
<figure class="chart">
<div class="lane"><div class="name"></div><div class="labels">{_labels(pipeline)}</div></div>
<div class="lane"><div class="name">payments in each sink</div>
<div class="plot tall">{_growth(pipeline, figures.stream)}</div></div>
<div class="lane"><div class="name"></div><div class="axis" aria-hidden="true">{_axis(pipeline.seconds)}</div></div>
</figure>
<ol class="happenings">{happenings}</ol>
</section>"""


def _growth(pipeline: Pipeline, stream: Stream) -> str:
    rows = len(stream.payments)
    return charts.growth_chart(pipeline, rows) + f'<span class="scale" style="top:0;transform:none">{rows:,}</span>'


def _labels(pipeline: Pipeline) -> str:
    """The labels of the chart's vertical lines, each at its time; neighbouring labels are at different heights."""
    return "".join(
        f'<span class="deed" style="left:{100 * deed.at_seconds / pipeline.seconds:.2f}%;top:{place % 3 * 1.1:.1f}rem" '
        f'title="{deed.at_seconds:.1f} s: {escape(deed.text)}">{escape(deed.label)}</span>'
        for place, deed in enumerate(charts.deeds(pipeline))
    )


def _table(figures: Figures) -> str:
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("", *COLUMNS))
    body = []
    for section, rows in figures.sections():
        body.append(f'<tbody><tr class="section"><th scope="rowgroup" colspan="{1 + len(COLUMNS)}">{section}</th></tr>')
        for row in rows:
            cells = [(name, cell) for name, cell in zip(COLUMNS, row.cells(), strict=True)]
            marked = {"lost": row.lost, "doubled": row.doubled, "verdict": not row.held}
            shown = "".join(f"<td{_class_of(name, bool(marked.get(name)))}>{escape(cell)}</td>" for name, cell in cells)
            body.append(f'<tr><th scope="row">{escape(row.name)}</th>{shown}</tr>')
        body.append("</tbody>")
    return f"<thead><tr>{heads}</tr></thead>{''.join(body)}"


def _class_of(column: str, marked: bool) -> str:
    kinds = {"lost": "is-lost", "doubled": "is-doubled", "verdict": "is-lost"}
    return f' class="{kinds[column]}"' if marked else ""


def _bundle(semantics: Semantics) -> str:
    lines = "".join(
        f"<dt>{_breakable(one.name)} = <b>{escape(_shown(one.value))}</b></dt><dd>{escape(one.why)}</dd>"
        for one in settings.bundle(semantics, "confluent").producer_settings
    )
    return f'<div class="card"><h3>{semantics}</h3><dl>{lines}</dl></div>'


def _breakable(name: str) -> str:
    """A long name may break after each of its dots."""
    return escape(name).replace(".", ".<wbr>")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(figures: Figures) -> str:
    if not figures.refused:
        return ""
    conflicts = "\n".join(escape(line) for line in figures.refused)
    return (
        "<h3 style='margin-top:1.6rem'>And what does not go together</h3><p><code>semel settings check</code> names it "
        f"before it is deployed:</p><pre class='wrap'>{conflicts}</pre><p>The client refuses it when it is made:</p>"
        f"<pre class='wrap'>{escape(figures.refusal)}</pre>"
    )

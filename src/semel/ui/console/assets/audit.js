// One audit: for each sink a bar of its stored, lost and doubled rows, and the ids.

import { verdict } from "./audits.js";
import { counted, drawing, facts, h, legend, number, table, time } from "./elements.js";

export const path = "/audit";
export const under = "/audits";
export const question = (query, about) => (about.has_audits ? "audit" : null);
export const title = () => "An audit";
export const isLive = () => false;

export { words } from "./audits.js";

const KINDS = { lost: "sent, and not there", doubled: "there more often than sent", foreign: "there, and never sent", altered: "there, with another amount or in another window" };

export function view(answer) {
  if (answer === null) return h("p", { class: "empty" }, "The console was given no audits: start it with ", h("code", {}, "semel console --audits DIR"), ".");
  return [
    h("p", { class: "lead" }, headline(answer), " ", verdict(answer)),
    facts(["begun", time(answer.began_ms)], ["took", `${answer.seconds.toFixed(1)} s`], ["source", answer.source.name], ["sent", number(answer.source.rows)], answer.source.amount === null ? null : ["amount", answer.source.amount]),
    unread(answer.source),
    answer.sinks.map((sink) => shown(sink)),
  ];
}

function headline(answer) {
  const count = (kind) => answer.sinks.reduce((sum, sink) => sum + sink[kind].rows, 0);
  return `${count("lost")} lost, ${count("doubled")} doubled.`;
}

function unread(counted_) {
  const parts = [counted_.without_id ? `${counted_.without_id} rows have no id` : null, counted_.unreadable ? `${counted_.unreadable} have a time or an amount that cannot be read` : null].filter(Boolean);
  return parts.length ? h("p", { class: "bad" }, `${counted_.name}: ${parts.join(", ")}. Nothing can be said of them.`) : null;
}

function shown(sink) {
  const stored = sink.chart.title.replace(`${sink.name}: `, "").split(" stored once")[0];
  return h(
    "article",
    {},
    h("h2", {}, sink.name),
    h("div", { class: "plot bar" }, drawing(sink.chart)),
    legend(["stored", h("b", {}, stored), " stored once"], ...Object.keys(KINDS).map((kind) => [kind, h("b", {}, number(sink[kind].rows)), ` ${kind}`])),
    facts(["rows", number(sink.rows)], sink.amount === null ? null : ["amount", sink.amount]),
    unread(sink),
    Object.entries(KINDS).map(([kind, meaning]) => ids(kind, meaning, sink[kind])),
    sink.windows.length ? windows(sink) : null,
  );
}

function ids(kind, meaning, found) {
  if (!found.rows) return null;
  const cut = found.listed.length < found.ids ? `, the first ${found.listed.length} are named` : "";
  return [
    h("h3", {}, `${found.rows} ${kind}: ${meaning}${cut}`),
    h("ul", { class: "ids", tabindex: "0", role: "list", "aria-label": `Ids that are ${kind}` }, found.listed.map((one) => h("li", {}, one.id, one.rows > 1 ? ` (${one.rows} times)` : ""))),
  ];
}

function windows(sink) {
  const rows = sink.windows.map((one) => [one.begin_ms === null ? "without a time" : time(one.begin_ms), number(one.source_rows), number(one.sink_rows)]);
  return table(`${counted(sink.windows.length, "window differs", "windows differ")}`, [["Window from", "name"], ["Sent", "number"], ["Stored", "number"]], rows);
}

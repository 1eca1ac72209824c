// The kept audits: the history of each source and sink, and the findings of each audit.

import { badge, counted, drawing, h, legend, link, number, table, time } from "./elements.js";

export const path = "/audits";
export const name = "Audits";
export const question = (query, about) => (about.has_audits ? "audits" : null);
export const title = () => "Audits";
export const isLive = () => true;

export const words = [
  ["audit", "semel audit compares the ids that were sent with the ids that are stored. With --keep DIR it keeps the verdict."],
  ["lost", "Sent, and not there."],
  ["doubled", "There more often than sent."],
  ["foreign", "There, and never sent."],
  ["altered", "There as often as sent, but with another amount or in another window."],
];

export function view(answer) {
  if (answer === null) {
    return h("p", { class: "empty" }, "The console was given no audits. Keep them with ", h("code", {}, "semel audit --source ... --sink ... --keep ./audits"), ", and start the console with ", h("code", {}, "semel console --audits ./audits"), ".");
  }
  if (answer.audits.length === 0) {
    return h("p", { class: "empty" }, `No audit is kept in ${answer.directory} yet. `, h("code", {}, `semel audit --source ... --sink ... --keep ${answer.directory}`), " keeps one.");
  }
  const known = answer.audits.filter((one) => one.trouble === null);
  return [
    h("p", { class: "lead" }, headline(known)),
    answer.histories.map(history),
    list(answer.audits),
  ];
}

function headline(known) {
  if (known.length === 0) return "None of the files can be read.";
  const wrong = known.filter((one) => !one.clean).length;
  const last = known[0].clean ? "The last audit is clean." : "The last audit is not clean.";
  return `${last} ${wrong ? `${wrong} of ${known.length} are not.` : known.length > 1 ? `So are all ${known.length}.` : ""}`;
}

function history(one) {
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("strong", {}, one.sink), ` against ${one.source}: ${counted(one.count, "audit")}, ${one.wrong ? `${one.wrong} not clean` : "all clean"}. Each column is an audit; what was doubled stands above the line, on a scale of its own.`),
    h("div", { class: "plot small" }, drawing(one.chart)),
    h("div", { class: "axis" }, time(one.first_ms), h("span", {}, `at most ${one.sent_max} sent${one.doubled_max ? ` and ${one.doubled_max} doubled` : ""}`), time(one.last_ms)),
    legend(["stored", "stored once"], ["lost", "lost"], ["doubled", "doubled"]),
  );
}

function list(audits) {
  const columns = [["When", "name"], ["Verdict"], ["Sent", "number"], ["Lost", "number"], ["Doubled", "number"], ["Foreign", "number"], ["Altered", "number"], ["Source", "name"], ["Sinks", "name"]];
  const rows = audits.map((one) =>
    one.trouble === null
      ? [link("/audit", { audit: one.name }, time(one.began_ms)), verdict(one), number(one.rows), ...["lost", "doubled", "foreign", "altered"].map((kind) => wrong(one[kind])), one.source, one.sinks.join(", ")]
      : [one.name, h("span", { class: "bad" }, one.trouble), "", "", "", "", "", "", ""],
  );
  return table("The newest first", columns, rows);
}

export function verdict(one) {
  return one.clean ? badge("clean", "good") : badge("not clean", "bad");
}

export function wrong(count) {
  return count ? h("strong", { class: "bad" }, number(count)) : "0";
}

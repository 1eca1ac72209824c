// One topic: its partitions and its settings.

import { bytes, facts, form, h, input, link, number, pager, table } from "./elements.js";

export const path = "/topic";
export const under = "/topics";
export const question = "topic";
export const title = (query) => `Topic ${query.topic ?? ""}`;
export const isLive = () => true;

export const words = [
  ["begin, end", "The first offset that is kept, and the one that the next record gets."],
  ["last stable offset", "Readers of committed records get what is before it. It is where the oldest open transaction begins, or the end."],
  ["held back", "How many offsets lie between the last stable offset and the end: written, but not shown to readers of committed records until a transaction ends."],
];

export function view(answer, query, tools) {
  const columns = [["Partition", "number"], ["Begin", "number"], ["Last stable", "number"], ["End", "number"], ["Held back", "number"], ["Size", "number"], ["Leader", "name"]];
  const rows = answer.partitions.map((one) => [
    link("/records", { topic: answer.name, partition: one.partition }, one.partition),
    number(one.begin),
    number(one.stable),
    number(one.end),
    one.stable === one.end ? "0" : h("span", { class: "held" }, number(one.end - one.stable)),
    bytes(one.bytes),
    one.leader ?? h("span", { class: "bad" }, "none now"),
  ]);
  return [
    facts(["id", h("code", {}, answer.id)], ["partitions", answer.count]),
    table("Partitions: choose one to see its records", columns, rows),
    pager(path, query, answer.page, answer.pages),
    h("h2", {}, "Settings"),
    settings(answer.settings),
    tools.allowsChanges ? [h("h2", {}, "Change it"), changing(answer, tools.change)] : null,
  ];
}

function changing({ name, count }, change) {
  const setting = [input("Setting", "setting", "", { required: true }), input("Value (empty: the brokers’ default)", "value", "")];
  return [
    form((values) => change("configure_topic", { topic: name, ...values }), setting, "Set ..."),
    form((values) => change("grow_topic", { topic: name, ...values }), input("How many partitions", "partitions", count, { type: "number", min: 1, required: true }), "Add partitions ..."),
    h("p", {}, h("button", { type: "button", class: "danger", onclick: () => change("delete_topic", { topic: name }) }, "Delete the topic ...")),
  ];
}

function settings(configs) {
  if (configs === null) return h("p", {}, "The login of the console may not see the settings.");
  if (configs.length === 0) return h("p", {}, "Nothing is set on this topic: the defaults of the brokers are in force.");
  return table("Set on this topic", [["Setting", "name"], ["Value", "name"]], configs.map((one) => [one.name, one.value]));
}

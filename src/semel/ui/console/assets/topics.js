// The list of topics.

import { bytes, check, counted, filter, form, h, input, link, number, pager, table } from "./elements.js";

export const path = "/topics";
export const name = "Topics";
export const question = "topics";
export const title = () => "Topics";
export const isLive = () => true;

export const words = [
  ["offsets", "How many offsets lie between the beginning and the end of the partitions. That is not the number of records: the end of a transaction takes an offset, and compaction leaves holes."],
  ["size", "What the leaders of the partitions have on their disks, compressed as it came. It is not known where the login of the console may not describe the cluster."],
  ["led", "How many of the partitions have a leader now. One without a leader can be neither read nor written."],
];

export function view(answer, query, { go, change, allowsChanges }) {
  const fields = [
    input("Find in names", "find", query.find, { type: "search" }),
    check("with the brokers' own topics", "internal", Boolean(query.internal)),
  ];
  const found = query.find ? `${counted(answer.count, "topic")} with “${query.find}” in the name` : counted(answer.count, "topic");
  const rows = answer.topics.map((one) => [
    link("/topic", { topic: one.name }, one.name),
    one.led === one.partitions ? number(one.partitions) : [number(one.partitions), h("span", { class: "bad" }, `, ${one.led} led`)],
    number(one.offsets),
    bytes(one.bytes),
  ]);
  return [
    filter(go, path, {}, fields, "Find"),
    answer.count === 0 ? empty(query) : table(found, [["Topic", "name"], ["Partitions", "number"], ["Offsets", "number"], ["Size", "number"]], rows),
    pager(path, query, answer.page, answer.pages),
    allowsChanges ? [h("h2", {}, "Create a topic"), creating(change)] : null,
  ];
}

function creating(change) {
  const fields = [
    input("Name of the new topic", "topic", "", { required: true }),
    input("Partitions (the brokers’ default)", "partitions", "", { type: "number", min: 1 }),
    input("Settings, such as retention.ms=60000", "settings", ""),
  ];
  return form((values) => change("create_topic", values), fields, "Create ...");
}

function empty(query) {
  if (query.find) return h("p", { class: "empty" }, `No topic has “${query.find}” in its name. `, link(path, {}, "Show all topics"), ".");
  return h("p", { class: "empty" }, "There is no topic yet. A producer makes one by writing to it: ", h("code", {}, "semel produce payments"), " writes each line that you type.");
}

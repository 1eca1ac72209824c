// The list of consumer groups.

import { counted, filter, h, input, link, number, pager, table } from "./elements.js";

export const path = "/groups";
export const name = "Groups";
export const question = "groups";
export const title = () => "Consumer groups";
export const isLive = () => true;

export const words = [
  ["lag", "How many offsets lie between what the group has committed and the last stable offset, in all its partitions. It is what readers of committed records could have read by now. Markers of transactions and holes of compaction count, so it is at least the number of records."],
  ["protocol", "How the members agree on who reads what. classic: the members decide, as in every version of Kafka. consumer: the broker decides (KIP-848)."],
  ["state", "Stable: the members read. Empty: there are no members, and the offsets are kept. PreparingRebalance, CompletingRebalance, Assigning, Reconciling: partitions are being shared out."],
];

export function view(answer, query, { go }) {
  const rows = answer.groups.map((one) => [
    link("/group", { group: one.name }, one.name),
    one.kind,
    one.state ?? "not known",
    number(one.partitions),
    number(one.lag),
  ]);
  const found = counted(answer.count, "group") + (query.find ? ` with “${query.find}” in the name` : "");
  return [
    filter(go, path, {}, [input("Find in names", "find", query.find, { type: "search" })], "Find"),
    answer.count === 0 ? empty(query) : table(found, [["Group", "name"], ["Protocol"], ["State"], ["Partitions", "number"], ["Lag", "number"]], rows),
    pager(path, query, answer.page, answer.pages),
  ];
}

function empty(query) {
  if (query.find) return h("p", { class: "empty" }, `No group has “${query.find}” in its name. `, link(path, {}, "Show all groups"), ".");
  return h("p", { class: "empty" }, "There is no consumer group. A consumer makes one when it subscribes or commits with a ", h("code", {}, "group.id"), ".");
}

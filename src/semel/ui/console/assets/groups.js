// The list of consumer groups.

import { counted, filter, h, input, lagOf, link, number, pager, table } from "./elements.js";

export const path = "/groups";
export const name = "Groups";
export const question = "groups";
export const title = () => "Consumer groups";
export const isLive = () => true;

export const words = [
  ["lag", "How many committed records the group has still to get, in all its partitions, up to the last stable offset. Markers of transactions, aborted records and holes of compaction take offsets and are no such records. The console reads at most 8 MB to count them, and says “at most” where that does not suffice."],
  ["protocol", "How the members agree on who reads what. classic: the members decide, as in every version of Kafka. consumer: the broker decides (KIP-848)."],
  ["state", "Stable: the members read. Empty: there are no members, and the offsets are kept. PreparingRebalance, CompletingRebalance, Assigning, Reconciling: partitions are being shared out."],
];

export function view(answer, query, { go }) {
  const rows = answer.groups.map((one) => [
    link("/group", { group: one.name }, one.name),
    one.kind,
    one.state ?? "not known",
    number(one.partitions),
    lagOf(one),
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

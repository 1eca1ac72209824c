// The open transactions, the oldest first, and how far each holds back the last stable offset.

import { counted, duration, facts, filter, h, input, lagOf, link, number, table, time } from "./elements.js";

export const path = "/transactions";
export const name = "Transactions";
export const question = "transactions";
export const title = () => "Open transactions";
export const isLive = () => true;
export const hasAges = true;

export const words = [
  ["open transaction", "A producer has begun it and has neither committed nor aborted it. The broker aborts it by itself when its timeout is over."],
  ["last stable offset", "Readers of committed records get what is before it. In each partition it is where the oldest open transaction begins."],
  ["holds back", "The transaction begins where the last stable offset is, so it is the one that readers of committed records wait for: they do not get the records behind it, even committed ones."],
  ["groups that read it", "How many records each has still to get before the last stable offset, at which a reader of committed records waits until the transaction ends. A reader of all records does not wait; the broker cannot tell the two apart."],
  ["abort", "Claims the transactional id, as a new instance of the producer would. The broker aborts what is open and fences the producer: if it still lives, its next request is refused."],
];

export function view(answer, query, tools) {
  return [
    filter(tools.go, path, {}, [input("Find in transactional ids", "find", query.find, { type: "search" })], "Find"),
    h("p", { class: "lead" }, headline(answer, query, tools.now)),
    answer.groups && answer.groups.asked < answer.groups.count ? h("p", { class: "quiet" }, `Only the first ${answer.groups.asked} of ${answer.groups.count} groups by name were asked whether they read there.`) : null,
    answer.transactions.length === 0 ? empty() : answer.transactions.map((one) => transaction(one, tools)),
  ];
}

function headline(answer, query, now) {
  const found = query.find ? ` with “${query.find}” in the id` : "";
  if (answer.count === 0) return `No transaction is open${found}.`;
  const shown = answer.transactions.length;
  const known = answer.count > answer.asked_max ? ` of the ${answer.asked_max} that were asked` : "";
  const part = answer.count > shown ? ` The ${shown} oldest${known} are shown.` : "";
  const oldest = answer.transactions[0];
  const age = oldest?.began_ms ? `, the oldest for ${duration(now - oldest.began_ms)}` : "";
  return `${counted(answer.count, "transaction is", "transactions are")} open${found}${age}.${part}`;
}

function empty() {
  return h("p", { class: "empty" }, "No reader of committed records waits for a producer. A transaction appears here as soon as its producer writes or announces a partition.");
}

function transaction(one, tools) {
  const held = one.partitions.filter((where) => where.holds);
  const age = one.began_ms === null ? "not known" : [time(one.began_ms), ` ${duration(tools.now - one.began_ms)} ago`];
  const columns = [["Partition", "name"], ["Begins at", "number"], ["Last stable", "number"], ["End", "number"], ["Holds back", "number"], ["Groups that read it", "name"]];
  const rows = one.partitions.map((where) => [
    link("/records", { topic: where.topic, partition: where.partition, from: where.begun ?? "latest" }, `${where.topic}-${where.partition}`),
    where.begun === null ? "nothing written" : number(where.begun),
    number(where.stable),
    number(where.end),
    where.holds ? h("strong", { class: "held" }, counted(where.holds, "offset")) : "0",
    [
      where.readers.map((one, place) => [place ? ", " : null, link("/group", { group: one.group }, one.group), " ", waits(one)]),
      where.reader_count > where.readers.length ? `, and ${where.reader_count - where.readers.length} more` : null,
    ],
  ]);
  const more = one.partition_count - one.partitions.length;
  return h(
    "article",
    { class: held.length ? "held" : null },
    h("h2", {}, one.id),
    held.length ? h("p", { class: "held" }, `Readers of committed records wait for it in ${counted(held.length, "partition")}.`) : null,
    facts(
      ["open since", age],
      ["producer", `${one.producer_id} in epoch ${one.producer_epoch}`],
      ["aborted by itself after", duration(one.timeout_ms)],
    ),
    one.partition_count === 0
      ? h("p", {}, "It has written to no partition.")
      : table(`Partitions of ${one.id}${more > 0 ? `, and ${more} more` : ""}`, columns, rows),
    h("p", {}, ending(one, tools)),
  );
}

function waits(one) {
  if (one.lag === null) return "has committed nothing";
  return one.lag === 0 ? "waits there" : ["is ", lagOf(one), " before it"];
}

function ending(one, { allowsChanges, change }) {
  if (!allowsChanges) return ["A person ends it with ", h("code", {}, one.command), "."];
  return h("button", { type: "button", class: "danger", onclick: () => change("abort", { id: one.id }) }, "Abort ...");
}

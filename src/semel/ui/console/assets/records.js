// The records of one partition.

import { get } from "./api.js";
import { address, badge, bytes, choice, counted, facts, filter, h, input, link, number, table, time } from "./elements.js";
import { indented } from "./json.js";

export const path = "/records";
export const under = "/topics";
export const question = "records";
export const title = (query) => `Records of ${query.topic ?? ""}, partition ${query.partition || 0}`;
// Further lines of a key or a value are in a part that can be opened.
const LINES_MAX = 12;

// Shorter JSON stays in one line.
const ONE_LINE = 60;

// Only the end of a partition moves; a requested offset or time does not.
export const isLive = (query) => !query.time && (!query.from || query.from === "latest");

export const words = [
  ["aborted", "The record was written in a transaction that was aborted. It keeps its place in the log, and no reader of committed records ever gets it. It is struck out, and the marker that aborted it is named. A marker with a later epoch than the record's means that its writer was fenced: the transaction's time was over, another instance claimed its id, or a person aborted it. With the newest version of transactions the epoch goes up with every end."],
  ["held back", "The record lies behind the last stable offset: a transaction before it is still open, so readers of committed records do not get it yet."],
  ["marker", "What the broker writes at the end of a transaction. It takes an offset and is no record."],
  ["producer, epoch, sequence", "The claim under which the record was written. The broker accepts each number of a producer once in a partition: the same number again is a duplicate, and is not stored."],
];

export function view(answer, query, { go }) {
  const kept = { topic: answer.topic };
  const fields = [
    input("Partition", "partition", query.partition || 0, { type: "number", min: 0, max: answer.partitions - 1 }),
    input("From offset, earliest or latest", "from", query.from || "latest"),
    input("From a time (UTC, if it names no zone)", "time", query.time, { placeholder: "2026-01-31T12:00:00Z" }),
    input("Find", "find", query.find, { type: "search" }),
    choice("in", "in", query.in ?? "both", [["both", "key or value"], ["key", "the key"], ["value", "the value"]]),
  ];
  return [
    filter(go, path, kept, fields),
    facts(["begins at", number(answer.begin)], ["last stable offset", number(answer.stable)], ["ends at", number(answer.end)]),
    searched(answer, query),
    ...answer.unreadable.map((one) => h("p", { class: "bad" }, `The batch at offsets ${one.first} to ${one.last} cannot be read: ${one.why}.`)),
    answer.records.length === 0 ? empty(answer, query) : sheet(answer, query),
    more(answer, query),
  ];
}

function searched(answer, query) {
  if (!query.find) return null;
  const until = answer.next === null ? "the end" : `offset ${answer.next}`;
  const found = `${counted(answer.records.length, "record")} with “${query.find}” from offset ${answer.start} up to ${until}, in ${bytes(answer.searched_bytes)}.`;
  const isPart = Number(answer.start) > Number(answer.begin);
  const whole = isPart ? [" ", link(path, { ...query, from: "earliest", time: null }, "Search from the beginning"), "."] : null;
  return h("p", {}, found, whole);
}

function empty(answer, query) {
  if (query.find) return h("p", { class: "empty" }, answer.next === null ? `Nothing was found from offset ${answer.start} up to the end.` : "Nothing was found so far.");
  if (answer.begin === answer.end) return h("p", { class: "empty" }, "This partition holds no records. What is written to it appears here.");
  return h("p", { class: "empty" }, "There is no record from there on. ", link(path, { topic: answer.topic, partition: answer.partition }, "Show the latest records"), ".");
}

function more(answer, query) {
  if (answer.next === null) return null;
  const next = { ...query, partition: answer.partition, from: answer.next, time: null };
  return h("p", {}, link(path, next, query.find ? `Search on from offset ${answer.next}` : `Go on at offset ${answer.next}`));
}

function sheet(answer, query) {
  const columns = [["Offset", "number"], ["Time"], ["Written as"], ["Key"], ["Value"]];
  const rows = answer.records.map((one) => ({
    class: one.kind,
    cells: [
      link(path, { topic: answer.topic, partition: answer.partition, from: one.offset }, number(one.offset)),
      time(one.time_ms),
      claim(one),
      one.kind === "marker" ? null : field(answer, one, "key"),
      one.kind === "marker" ? h("span", { class: "quiet" }, ending(one)) : [field(answer, one, "value"), headers(one)],
    ],
  }));
  return table(`Records of partition ${answer.partition}, ${query.find ? "found" : "in their order"}`, columns, rows);
}

function ending(one) {
  if (one.ending === "commit") return "marker: the transaction was committed";
  if (one.ending === "abort") return "marker: the transaction was aborted";
  return one.ending;
}

function claim(one) {
  const fate = { aborted: [badge("aborted", "bad"), reason(one.ended_by)], held: badge("held back", "held") }[one.kind];
  const producer = one.producer_id === null ? "no claim" : `producer ${one.producer_id}, epoch ${one.producer_epoch}`;
  const sequence = one.sequence === null ? "" : `, sequence ${one.sequence}`;
  return [fate ? [fate, h("br")] : null, `${producer}${sequence}`];
}

function reason(marker) {
  if (marker === null) return " by a marker further on";
  const epoch = marker.is_later ? `, in epoch ${marker.epoch}` : "";
  return [" by the marker at offset ", number(marker.offset), `${epoch}, `, time(marker.time_ms)];
}

function headers(one) {
  if (one.headers.length === 0) return null;
  const list = one.headers.map((header) => h("li", {}, `${header.name}: `, header.bytes === undefined ? "null" : text(header)));
  const left = one.headers_left_out ? h("p", {}, `${one.headers_left_out} more are not shown.`) : null;
  return h("details", {}, h("summary", {}, counted(one.headers.length + one.headers_left_out, "header")), h("ul", {}, list), left);
}

function field(answer, one, part) {
  const data = one[part];
  if (data === null) return h("span", { class: "quiet" }, "null");
  if (data.bytes === 0) return h("span", { class: "quiet" }, "empty");
  const shown = lines(text(data));
  if (data.next === null) return shown;
  const place = { topic: answer.topic, partition: answer.partition, offset: one.offset, part };
  const file = { href: address("/file/record", place), download: true, "aria-label": `Download the ${part} at offset ${one.offset}` };
  return [shown, h("button", { type: "button", onclick: () => whole(place, data) }, `Show all ${bytes(data.bytes)}`), " ", h("a", file, "Download")];
}

function lines(content) {
  const every = content.split("\n");
  const first = h("pre", { class: "data" }, every.slice(0, LINES_MAX).join("\n"));
  const more = every.slice(LINES_MAX);
  if (more.length === 0) return first;
  return [first, h("details", {}, h("summary", {}, counted(more.length, "more line")), h("pre", { class: "data" }, more.join("\n")))];
}

function text(data) {
  if (data.text === undefined) return `hexadecimal: ${data.hex}`;
  // A part of a value is no whole JSON.
  return (data.next === null && data.text.length > ONE_LINE ? indented(data.text) : null) ?? data.text;
}

// A large key or value, in pieces that the person requests one after the other.
function whole(place, data) {
  const shown = h("pre", { class: "data", tabindex: "0" });
  const progress = h("p", { role: "status" });
  let at = 0;
  const on = async () => {
    next.disabled = true;
    try {
      const { piece } = await get("piece", { ...place, at });
      shown.append(document.createTextNode(piece.text ?? piece.hex));
      at = piece.next;
      progress.textContent = at === null ? `All ${data.bytes} bytes are shown.` : `${at} of ${data.bytes} bytes are shown.`;
    } catch (error) {
      progress.textContent = error.message;
    }
    next.disabled = at === null;
  };
  const next = h("button", { type: "button", onclick: on }, "Show the next piece");
  const title = `The ${place.part} at offset ${place.offset}`;
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), progress, h("p", {}, next, " ", close), shown);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  on();
}

// The producers that the partitions of a topic remember.

import { counted, filter, h, input, link, number, pager, table, time } from "./elements.js";

export const path = "/producers";
export const name = "Producers";
export const title = (query) => (query.topic ? `Producers of ${query.topic}` : "Producers");
export const question = (query) => (query.topic ? "producers" : null);
export const isLive = () => true;

export const words = [
  ["producer id, epoch", "Who a writer is to the broker. A claim of the same transactional id raises the epoch, and from then on a writer of the old epoch is fenced: the broker refuses it."],
  ["last", "The number of the last record that the partition has accepted from this producer. Numbers count up by one with each record, in each partition apart."],
  ["next", "The one number that the partition accepts next. A number that was accepted before is a duplicate and is not stored; a later one is a gap and is refused. A new epoch begins at 0."],
  ["window", "The last five batches that the partition would know again, by their sequence numbers, oldest first; beside them the next one that it accepts. A client has no more than five batches under way, so it never repeats an older one."],
  ["last heard", "When a broker of semel last accepted a batch of this producer in the partition. Apache Kafka gives the newest timestamp in that batch, which is usually the producer's clock."],
  ["open since", "The offset at which the open transaction of the producer begins in this partition, if it has one."],
];

export function view(answer, query, { go }) {
  const form = filter(go, path, {}, [input("Topic", "topic", query.topic, { required: true })]);
  if (answer === null) {
    return [form, h("p", { class: "empty" }, "Name a topic to see who has written to it. ", link("/topics", {}, "Find it in the list of topics"), ".")];
  }
  const columns = [["Producer", "name"], ["Epoch", "number"], ["Partition", "number"], ["Window"], ["Last", "number"], ["Next", "number"], ["Last heard"], ["Open since", "number"]];
  const rows = answer.producers.map((one) => [
    [number(one.producer_id), one.transactional_id === null ? null : [", ", link("/transactions", { find: one.transactional_id }, one.transactional_id)]],
    number(one.producer_epoch),
    link("/records", { topic: answer.topic, partition: one.partition }, one.partition),
    slots(one, answer.window_batches),
    one.last_sequence === null ? "none in this epoch" : number(one.last_sequence),
    number(one.next_sequence),
    time(one.heard_ms),
    one.begun === null ? "" : h("span", { class: "held" }, number(one.begun)),
  ]);
  const shown = answer.count > rows.length ? `The ${rows.length} that wrote last, of ${answer.count}` : counted(answer.count, "producer");
  return [
    form,
    answer.away.length ? h("p", { class: "bad" }, `Without a leader now: ${answer.away.join(", ")}.`) : null,
    answer.why_no_windows === null ? null : h("p", { class: "quiet" }, `The windows are told by a broker of semel alone: ${answer.why_no_windows}.`),
    rows.length ? table(`${shown}, by partition`, columns, rows) : h("p", { class: "empty" }, "No producer with an id has written here for as long as the broker remembers them. A producer that is not idempotent has none."),
    pager(path, query, answer.page, answer.pages),
  ];
}

function slots(one, count) {
  if (one.window === null) return h("span", { class: "quiet" }, "not told");
  const known = one.window.map((batch) => h("li", { title: `${counted(batch.records, "record")} at offset ${batch.offset}` }, batch.records === 1 ? batch.first_sequence : `${batch.first_sequence}–${batch.last_sequence}`));
  const open = Array.from({ length: count - known.length }, () => h("li", { class: "open" }, "·"));
  return h("ul", { class: "window", "aria-label": "Window" }, known, open, h("li", { class: "next" }, `next ${one.next_sequence}`));
}

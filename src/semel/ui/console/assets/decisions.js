// The broker's verdicts on batches, as they come.

import { address, badge, counted, h, link, number, table, tile, tiles, time, verdicts } from "./elements.js";

export const path = "/decisions";
export const name = "Decisions";
export const question = (query, about) => (about.has_decisions ? "decisions" : null);
export const title = () => "Decisions";
export const isLive = () => true;

export const words = [
  ["batch", "What a producer sends at once to one partition. An idempotent producer gives its id, its epoch, and the sequence number of the first record with it."],
  ["accepted", "The batch has the next number. It is stored."],
  ["duplicate", "The batch was stored before, and its producer had no answer. It is not stored again, and the producer gets the answer of the original."],
  ["gap", "A batch before this one is missing. It is refused, and nothing is stored."],
  ["fenced", "A newer epoch of the same producer is at work. The batch is refused, and nothing is stored."],
  ["refused", "The batch was refused for another reason, such as a checksum that does not match. There is no verdict on its number."],
  ["offset", "Where the batch lies; of a duplicate, where its original lies."],
  ["archived", "A record of a share group that was delivered as often as the group allows, and that nobody has accepted. Nobody gets it any more."],
  ["not shown", "Duplicates, gaps and fenced batches that fell faster than they could be listed. The counts and the chart have them all. Of accepted batches, only the newest are ever listed."],
];

const OUTCOMES = [["", "All"], ["accepted", "Accepted"], ["duplicate", "Duplicates"], ["gap", "Gaps"], ["fenced", "Fenced"]];

export function view(answer, query) {
  if (answer === null) return untold();
  if (answer.counts === null) return h("p", { class: "empty" }, "The broker has told nothing yet.");
  const { accepted, duplicate, gap, fenced, refused } = answer.counts;
  return [
    h("p", { class: "lead" }, `${counted(duplicate, "duplicate was", "duplicates were")} not stored.`),
    tiles(
      tile(number(duplicate), "duplicates", "sent again, and not stored again", "good"),
      tile(number(accepted), "accepted", "batches since the broker was started"),
      tile(number(gap), "gaps", "refused: a batch before them is missing", gap ? "bad" : null),
      tile(number(fenced), "fenced", "refused: a newer epoch is at work", fenced ? "held" : null),
      refused ? tile(number(refused), "refused", "for another reason, without a verdict") : null,
      answer.left_out ? tile(number(answer.left_out), "not shown", "duplicates, gaps and fenced that fell faster than they could be listed", "held") : null,
    ),
    verdicts(answer.history),
    h("nav", { class: "choices", "aria-label": "Which verdicts" }, OUTCOMES.map(([outcome, text]) => choice(outcome, text, query))),
    answer.decisions.length ? list(answer) : h("p", { class: "empty" }, "None since this page was opened. Those before are in the counts."),
    answer.shared.length ? h("h2", {}, "Records of share groups") : null,
    answer.shared.length ? shared(answer.shared) : null,
  ];
}

function choice(outcome, text, query) {
  return h("a", { href: address(path, { outcome }), "aria-current": (query.outcome ?? "") === outcome ? "page" : null }, text);
}

function list(answer) {
  const columns = [["Number", "number"], ["Verdict"], ["Where", "name"], ["Producer", "number"], ["Epoch", "number"], ["Sequence", "number"], ["Expected", "number"], ["Got", "number"], ["When"]];
  const rows = answer.decisions.map((one) => ({
    class: one.outcome,
    cells: [
      number(one.number),
      badge(one.said, one.outcome),
      link("/records", { topic: one.topic, partition: one.partition, from: one.offset ?? "latest" }, `${one.topic}-${one.partition}`),
      one.producer_id < 0 ? "none" : number(one.producer_id),
      one.producer_id < 0 ? "" : number(one.epoch),
      one.producer_id < 0 ? "" : number(one.sequence),
      one.expected === null ? "" : number(one.expected),
      one.got === null ? "" : number(one.got),
      time(one.at_ms),
    ],
  }));
  return table("The newest first", columns, rows);
}

function shared(told) {
  const columns = [["What"], ["Group", "name"], ["Where", "name"], ["First", "number"], ["Last", "number"], ["Deliveries", "number"], ["Member", "name"], ["When"]];
  const rows = told.map((one) => [
    one.event.replace("_", " "),
    link("/group", { group: one.group }, one.group),
    link("/records", { topic: one.topic, partition: one.partition, from: one.first }, `${one.topic}-${one.partition}`),
    number(one.first),
    number(one.last),
    number(one.deliveries),
    one.member || "the broker",
    time(one.at_ms),
  ]);
  return table("The newest first", columns, rows);
}

function untold() {
  return h(
    "p",
    { class: "empty" },
    "A broker of semel tells its verdicts where it serves its metrics. Start it with ",
    h("code", {}, "semel serve --metrics 127.0.0.1:9464"),
    ", and the console with ",
    h("code", {}, "semel console --decisions 127.0.0.1:9464"),
    ". Apache Kafka tells them to nobody.",
  );
}

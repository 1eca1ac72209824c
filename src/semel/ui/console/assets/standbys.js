// The brokers on a store: the active one, the standbys, and the takeovers.

import { badge, bytes, counted, facts, h, number, table, tile, tiles, time } from "./elements.js";

export const path = "/standbys";
export const name = "Standbys";
export const question = (query, about) => (about.has_store ? "standbys" : null);
export const title = () => "Brokers on the store";
export const isLive = () => true;

export const words = [
  ["active", "The one broker that serves clients. It puts its lease into the store several times while the lease lasts; when it is silent for longer, one that stands by takes over."],
  ["epoch", "Each takeover raises it by one, so it counts how often a broker became active. The store refuses whatever a broker of an earlier epoch still writes."],
  ["behind", "How many bytes of the journal a standby has yet to read. It reads them before it serves anybody."],
  ["takeover", "Those that this console has seen, since it was started."],
];

export function view(answer) {
  if (answer === null) {
    return h("p", { class: "empty" }, "The console was given no store. A broker that keeps its log in a store has others that stand by: start the console with ", h("code", {}, "semel console --store s3://BUCKET/PREFIX"), " to see them. Apache Kafka has none of this.");
  }
  const awake = answer.standbys.filter((one) => !one.is_silent);
  const most = Math.max(0, ...awake.map((one) => one.behind_bytes));
  return [
    h("p", { class: "lead" }, headline(answer)),
    tiles(
      tile(answer.epoch === null ? "none" : number(answer.epoch), "epoch", answer.is_active ? "of the active broker" : "of the broker that was active last", answer.is_active ? "good" : "bad"),
      tile(number(awake.length), awake.length === 1 ? "broker stands by" : "brokers stand by", awake.length ? `at most ${bytes(most)} behind` : "nobody would take over", awake.length ? "good" : "held"),
      tile(answer.lease_seconds === null ? "–" : `${answer.lease_seconds} s`, "lease", "silence after which a standby takes over"),
    ),
    standbys(answer),
    h("h2", {}, "Takeovers"),
    takeovers(answer.takeovers),
    h("h2", {}, "The store"),
    facts(["store", answer.store], ["cluster", answer.cluster_id], ["journal", bytes(answer.journal_bytes)], ...Object.entries(answer.contents).map(([what, found]) => [what, `${counted(found.objects, "object")}, ${bytes(found.bytes)}`])),
  ];
}

function headline(answer) {
  const where = places(answer.addresses);
  if (answer.is_active) return ["Active: ", where, "."];
  if (answer.epoch === null) return "No broker was ever active here.";
  return ["Nobody is active: ", where, answer.is_released ? " has stopped." : " is silent."];
}

function places(addresses) {
  const known = Object.entries(addresses);
  return known.length === 1 ? known[0][1] : known.map(([name, address]) => `${name}=${address}`).join(", ");
}

function standbys(answer) {
  if (answer.standbys.length === 0) return h("p", { class: "empty" }, "No broker stands by. Start another one on the same store, with a directory of its own: ", h("code", {}, "semel serve --store URL --data DIR"), ".");
  const rows = answer.standbys.map((one) => [places(one.addresses), one.is_silent ? badge("silent", "bad") : badge("stands by", "good"), bytes(one.behind_bytes), `${one.seconds_ago.toFixed(1)} s ago`]);
  return table("Those that stand by", [["Broker", "name"], ["State"], ["Behind", "number"], ["Heard of", "number"]], rows);
}

function takeovers(seen) {
  if (seen.length === 0) return h("p", {}, "None since this console was started.");
  return table("The newest first", [["Seen", "name"], ["Epoch", "number"], ["Active since then", "name"]], seen.map((one) => [time(one.seen_ms), number(one.epoch), places(one.addresses)]));
}

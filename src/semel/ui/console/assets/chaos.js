// A trial: switches for faults between clients and the console's own broker, and the broker's decisions.

import { facts, form, h, input, number, tile, tiles, verdicts } from "./elements.js";

export const path = "/chaos";
export const name = "Chaos";
export const question = (query, about) => (about.has_trial ? "chaos" : null);
export const title = () => "Chaos";
export const isLive = () => true;

export const words = [
  ["trial", "A broker that the console has started for tests, behind a network that can be made to fail. No other broker is touched."],
  ["a lost ACK", "The broker has stored a batch, and its answer does not arrive. The producer sends the batch again; an idempotent one with the same numbers, so the broker knows it again."],
  ["struck", "How often the fault has happened, since the trial began."],
  ["kill", "kill -9 of the broker's process, whatever it is doing, and a start on the same data. What was acknowledged is there."],
];

export function view(answer, query, tools) {
  if (answer === null) {
    return h("p", { class: "empty" }, "Faults are made only for a broker that the console has started for tests: ", h("code", {}, "semel console --trial ./trial-data --allow-changes"), ". It prints the address for your clients. ", h("code", {}, "semel chaos --upstream HOST:PORT"), " stands before a broker of yours.");
  }
  const { trial, counts } = answer;
  const struck = Object.fromEntries(trial.faults.map((one) => [one.fault, one.struck]));
  return [
    h("p", {}, "Let clients produce to ", h("code", {}, trial.clients), ": what they send goes through the faulty network to the broker at ", h("code", {}, trial.broker), "."),
    tiles(
      tile(number(struck.drop_ack), struck.drop_ack === 1 ? "ACK was lost" : "ACKs were lost", "stored, and its sender does not know", "held"),
      tile(counts ? number(counts.duplicate) : "?", counts?.duplicate === 1 ? "duplicate was not stored" : "duplicates were not stored", "sent again, and known again", "good"),
      tile(counts ? number(counts.accepted) : "?", "batches were stored", counts ? `${counts.gap} gaps and ${counts.fenced} fenced were refused` : null),
      tile(number(trial.kills), trial.kills === 1 ? "kill of the broker" : "kills of the broker", `it is ${trial.state}`, trial.state === "running" ? null : "bad"),
    ),
    answer.trouble ? h("p", { class: "held" }, answer.trouble) : null,
    answer.history ? verdicts(answer.history) : null,
    h("h2", {}, "Switches"),
    switches(trial, tools),
    facts(...trial.faults.map((one) => [one.fault.replace("_", " "), [number(one.struck), " struck"]]), ["connections", number(trial.connections)], ["requests", number(trial.requests)]),
  ];
}

function switches(trial, { change, allowsChanges }) {
  if (!allowsChanges) return h("p", {}, "You may only look.");
  const strike = (one) => h("button", { type: "button", onclick: () => change("strike", { fault: one.fault }) }, one.switch);
  return [
    h("div", { class: "switches", role: "group", "aria-label": "Faults that strike once" }, trial.faults.map(strike), h("button", { type: "button", class: "danger", onclick: () => change("kill", {}) }, "Kill the broker ...")),
    form((values) => change("lose", values), input("Lose so many of all ACKs, in percent", "percent", trial.percent, { type: "number", min: 0, max: 50, required: true }), "Lose them"),
    h("p", {}, h("button", { type: "button", onclick: () => change("calm", {}) }, "Let nothing go wrong")),
    trial.percent ? h("p", { class: "held" }, `${trial.percent} % of all ACKs are lost now.`) : null,
  ];
}

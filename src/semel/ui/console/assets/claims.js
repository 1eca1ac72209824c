// What waits in the tables of an application, and the messages that were put aside.

import { counted, duration, facts, h, number, table, tile, tiles, time } from "./elements.js";

export const path = "/claims";
export const name = "Claims";
export const title = () => "Claims of the application";
export const question = (query, about) => (about.has_databases ? "claims" : null);
export const isLive = () => true;
export const hasAges = true;

export const words = [
  ["outbox", "Messages that a transaction of the application has added and that are not known to be in the log yet. The relay brings them there."],
  ["quarantine", "Messages that the broker refused or that cannot be records, and events that could not be handled. They wait for a person, and those behind them in the same order wait with them."],
  ["retry, drop", "Retry lets it be tried again, before what waits behind it. Drop ends it: a message never gets into the log, and an event counts as handled."],
  ["floor", "The time before which claims of a consumer were deleted. An event from before the floor is put aside, because nobody can tell whether it was handled."],
  ["last batch of a sink", "The micro-batch that a Spark sink has written last, claimed in the transaction of its rows. The same batch again is a duplicate and is not written."],
  ["replay", "A request with an Idempotency-Key that was executed before: the client gets the stored answer, and nothing is executed again. A process of the application counts its own since it was started."],
  ["HTTP keys in flight", "Requests with steps that hold their Idempotency-Key now."],
];

export function view(answer, query, tools) {
  if (answer === null) {
    return h("p", { class: "empty" }, "The console was given no database. Start it with ", h("code", {}, "semel console --database postgresql://HOST/NAME"), " to see outbox, inbox and HTTP keys, and with ", h("code", {}, "--application URL"), " to see replays.");
  }
  return [
    answer.databases.map((one) => h("article", {}, h("h2", {}, one.name), database(one, tools))),
    answer.applications.map((one) => h("article", {}, h("h2", {}, one.name), application(one))),
  ];
}

function application(one) {
  if (one.error !== null) return h("p", { class: "bad" }, `The application: ${one.error}`);
  const { accepted = 0, replayed = 0, conflict = 0, mismatch = 0, forgotten = 0, fenced = 0 } = one.outcomes;
  const others = [[conflict, "while the first one ran"], [mismatch, "as another request"], [fenced, "too late"], [forgotten, "executed, and the answer not kept"]];
  const told = others.filter(([count]) => count).map(([count, what]) => `${count} ${what}`);
  return [
    tiles(
      tile(number(replayed), replayed === 1 ? "replay" : "replays", "answered from the store, and not executed again", "good"),
      tile(one.replays_per_hour === null ? "?" : number(one.replays_per_hour), "replays per hour", one.replays_per_hour === null ? "the process is too young, or does not tell its start" : "on average since the process was started"),
      tile(number(accepted), "requests executed", told.length ? told.join(", ") : "with a key, and their answers kept"),
    ),
    one.began_ms === null ? null : h("p", { class: "quiet" }, "Counted since ", time(one.began_ms)),
  ];
}

function database(one, tools) {
  if (one.error !== null) return h("p", { class: "bad" }, `The database: ${one.error}`);
  if (!one.has_tables) return h("p", { class: "empty" }, "It has no tables of semel. ", h("code", {}, "semel schema --database URL"), " makes them.");
  const keys = one.figures.semel_http_keys_in_flight;
  const aside = asideIn(one);
  return [
    tiles(
      one.outbox === null ? null : tile(number(one.outbox.waiting), "wait in the outbox", one.outbox.oldest_ms === null ? "all are in the log" : `the oldest for ${duration(tools.now - one.outbox.oldest_ms)}`),
      one.outbox === null ? null : tile(number(one.outbox.quarantined), "put aside", one.outbox.held_up ? `${one.outbox.held_up} wait behind` : "nothing waits behind", one.outbox.quarantined ? "bad" : "good"),
      one.inbox === null ? null : tile(number(aside), "put aside by the inbox", aside ? "they wait for a person, or for the loop" : "every event was handled", aside ? "bad" : "good"),
      keys === undefined ? null : tile(number(keys), "HTTP keys in flight", "requests that hold their key now"),
    ),
    one.outbox === null ? null : outbox(one, tools),
    one.inbox === null ? null : inbox(one, tools),
    one.sinks.length ? sinks(one.sinks, one.sink_count) : null,
  ];
}

function outbox(one, tools) {
  const found = one.outbox;
  const age = found.oldest_ms === null ? "" : `, the oldest for ${duration(tools.now - found.oldest_ms)}`;
  const shards = found.shards.map((shard) => [
    number(shard.shard),
    number(shard.batches),
    shard.is_at_hand ? "yes" : "no",
    shard.owner ?? "none yet",
    shard.owned_since_ms === null ? "" : time(shard.owned_since_ms),
  ]);
  const rows = found.refused.map((message) => [
    number(message.number),
    message.topic,
    message.key?.text ?? message.key?.hex ?? "",
    message.reason,
    time(message.refused_ms),
    number(message.behind),
    buttons(one, message, "outbox", tools),
  ]);
  return [
    h("h3", {}, "Outbox"),
    h("p", { class: "headline" }, `${counted(found.waiting, "message waits", "messages wait")}${age}.`),
    found.relay === null ? h("p", {}, "No relay has begun yet: ", h("code", {}, "semel outbox run"), " is one.") : null,
    shards.length ? table(`Shards of relay ${found.relay}${part(shards, found.shard_count)}`, [["Shard", "number"], ["Batches in the log", "number"], ["One on its way"], ["Relay", "name"], ["Since"]], shards) : null,
    found.quarantined === 0
      ? h("p", {}, "None of them was put aside.")
      : [
          h("p", { class: "bad" }, `${counted(found.quarantined, "message was", "messages were")} put aside, and ${found.held_up} wait behind.`),
          table(`Refused messages${part(rows, found.quarantined)}`, [["Number", "number"], ["Topic", "name"], ["Key", "name"], ["Reason", "name"], ["Refused"], ["Behind it", "number"], ["What to do"]], rows),
        ],
  ];
}

// The end of a caption whose table has not all rows.
function part(rows, count) {
  return rows.length < count ? `: the first ${rows.length} of ${count}` : "";
}

function asideIn(one) {
  const waiting = Object.entries(one.figures).filter(([figure]) => figure.startsWith("semel_inbox_quarantined"));
  return waiting.reduce((sum, [, value]) => sum + value, 0);
}

function inbox(one, tools) {
  const floors = one.inbox.floors.map((floor) => [floor.consumer, time(floor.floor_ms)]);
  const count = asideIn(one);
  const rows = one.inbox.aside.map((event) => [
    number(event.number),
    event.consumer,
    event.what ?? "",
    `${event.cause}, ${event.state}`,
    event.reason,
    time(event.since_ms),
    event.place === null ? "" : `${event.place[0]}-${event.place[1]} at ${event.place[2]}`,
    buttons(one, event, "inbox", tools),
  ]);
  return [
    h("h3", {}, "Inbox"),
    count === 0
      ? h("p", {}, "No event is in the quarantine.")
      : [
          h("p", { class: "bad" }, `${counted(count, "event is", "events are")} in the quarantine${count > rows.length ? `; the first ${rows.length} are shown` : ""}.`),
          table("Events put aside", [["Number", "number"], ["Consumer", "name"], ["Event", "name"], ["Cause, state"], ["Reason", "name"], ["Since"], ["From", "name"], ["What to do"]], rows),
        ],
    floors.length ? table(`Floors${part(floors, one.inbox.floor_count)}`, [["Consumer", "name"], ["Claims are kept from"]], floors) : null,
  ];
}

function sinks(found, count) {
  const rows = found.map((sink) => [sink.sink_id, number(sink.batch_id), number(sink.row_count), time(sink.committed_ms), sink.query_id ?? ""]);
  const columns = [["Sink", "name"], ["Last batch", "number"], ["Rows in it", "number"], ["Committed"], ["Query", "name"]];
  return [h("h3", {}, "Spark sinks into tables"), table(`The last batch that each sink has${part(rows, count)}`, columns, rows)];
}

function buttons(one, message, table, { allowsChanges, change }) {
  if (!allowsChanges) return h("code", {}, `semel ${table} quarantine`);
  return ["retry", "drop"].map((verb) => {
    const label = verb === "retry" ? "Retry" : "Drop";
    const onclick = () => change(`${table}_${verb}`, { database: one.number, message: String(message.number) });
    return [h("button", { type: "button", class: verb === "drop" ? "danger" : null, onclick, "aria-label": `${label} message ${message.number}` }, `${label} ...`), " "];
  });
}

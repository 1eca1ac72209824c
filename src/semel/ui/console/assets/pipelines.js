// The Spark sinks into the log: how far each of their lanes is.

import { counted, filter, h, input, lagOf, link, number, pager, table, time } from "./elements.js";

export const path = "/pipelines";
export const name = "Pipelines";
export const question = "pipelines";
export const title = () => "Pipelines";
export const isLive = () => true;

export const words = [
  ["sink", "A Spark query of semel that writes into a topic. Its progress topic has its name behind semel-progress-."],
  ["lane", "One of the fixed number of writers into which a sink divides its rows. Each has a partition of the progress topic."],
  ["query", "A Spark query of semel that reads the log shows how far it is in the group that its option kafka.group.id names. Nobody reads by that group; Spark's checkpoint says where the query goes on."],
  ["lag", "How many committed records the query has still to read, up to the last stable offset: at most so many where the console has not counted all of them."],
  ["attempts", "How often Spark has begun to write a batch in this lane. Each attempt raises the epoch of the lane's fence and turns away the attempt before it. Batches count from 0: more attempts than batches mean that Spark has run some more than once, and each batch was written once. On Apache Kafka an attempt that was cut off counts twice."],
  ["last batch", "The micro-batch that the lane has written last. The lane says so in the same transaction as the rows, so both are in the log or neither. A batch that Spark runs again is recognised by it, and is not written twice."],
];

export function view(answer, query, { go }) {
  return [
    filter(go, path, {}, [input("Find in names", "find", query.find, { type: "search" })], "Find"),
    answer.queries.length ? queries(answer.queries) : null,
    unasked(answer.groups),
    answer.count === 0 ? (answer.queries.length ? null : empty(query)) : answer.sinks.map(sink),
    pager(path, query, answer.page, answer.pages),
  ];
}

function empty(query) {
  if (query.find) return h("p", { class: "empty" }, `No sink has “${query.find}” in its name. `, link(path, {}, "Show all sinks"), ".");
  return h("p", { class: "empty" }, "No Spark query of semel writes into this log. Sinks into tables are on the page of claims, if the console was given their database.");
}

function unasked(groups) {
  if (groups === null) return h("p", { class: "quiet" }, "The login of the console may not see the groups of queries.");
  if (groups.asked === groups.count) return null;
  return h("p", { class: "quiet" }, `Only the first ${groups.asked} of ${groups.count} groups by name were asked whether they are queries: find the others by their names.`);
}

function queries(some) {
  const rows = some.map((one) => [link("/group", { group: one.group }, one.group), one.topics.join(", "), number(one.partitions), lagOf(one)]);
  return table("Queries that read the log", [["Group", "name"], ["Topics", "name"], ["Partitions", "number"], ["Lag", "number"]], rows);
}

function sink(one) {
  const rows = one.lanes.map((lane) =>
    lane.trouble === null
      ? [link("/records", { topic: one.topic, partition: lane.lane, from: lane.offset }, lane.lane), number(lane.batch_id), number(lane.rows), number(lane.attempts), time(lane.at_ms), lane.query_id]
      : [link("/records", { topic: one.topic, partition: lane.lane }, lane.lane), h("span", { class: "quiet" }, lane.trouble), "", "", "", ""],
  );
  const shown = one.lane_count > one.lanes.length ? `The first ${one.lanes.length} of ${one.lane_count} lanes` : counted(one.lane_count, "lane");
  return h(
    "article",
    {},
    h("h2", {}, one.sink),
    h("p", { class: "headline" }, standing(one.lanes.filter((lane) => lane.trouble === null))),
    table(`${shown} of ${one.sink}`, [["Lane", "number"], ["Last batch", "number"], ["Rows in it", "number"], ["Attempts", "number"], ["Written"], ["Query", "name"]], rows),
  );
}

function standing(lanes) {
  if (lanes.length === 0) return "No lane has written anything.";
  const batches = lanes.map((lane) => lane.batch_id);
  const least = Math.min(...batches);
  const most = Math.max(...batches);
  return least === most ? `Every lane that has written is at batch ${least}.` : `The lanes are between batch ${least} and batch ${most}.`;
}

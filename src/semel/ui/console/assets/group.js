// One consumer group: its members, its offset in each partition, and a reset of offsets.

import { counted, facts, form, h, input, lagOf, link, number, pager, table } from "./elements.js";

export const path = "/group";
export const under = "/groups";
export const question = "group";
export const title = (query) => `Group ${query.group ?? ""}`;
export const isLive = () => true;

export const words = [
  ["committed", "The offset at which the group goes on in this partition. What is before it counts as read."],
  ["last stable offset", "Readers of committed records get what is before it."],
  ["lag", "How many committed records the group has still to get up to the last stable offset. Markers of transactions, aborted records and holes of compaction take offsets and are no such records. The console reads at most 8 MB to count them, and says “at most” where that does not suffice."],
  ["held back", "From the last stable offset to the end: what an open transaction keeps from readers of committed records. No consumer can work it off; the page of transactions shows which transaction it is."],
  ["held", "Records of a share group that a member has acquired and not acknowledged yet. Its lock on them times out."],
  ["to come again", "Records of a share group that a member has released, or whose lock has timed out. Somebody gets them again, until they were delivered as often as the group allows."],
  ["reset", "Sets a group without members to other offsets. It shows first what it would do. What is skipped is not read, and what is set back is read again. Latest is the end of the partition, as in Kafka’s own tool: it is behind what an open transaction holds back."],
];

export function view(answer, query, tools) {
  const deleting = tools.allowsChanges ? h("p", {}, h("button", { type: "button", class: "danger", onclick: () => tools.change("delete_group", { group: answer.name }) }, "Delete the group ...")) : null;
  if (!answer.is_known) {
    return [
      facts(["protocol", answer.kind], ["state", answer.state ?? "not known"], ["coordinator", answer.coordinator]),
      h("p", { class: "empty" }, `The console shows the members and the offsets of groups with the protocols classic and consumer. For this one, use the tools of Apache Kafka: `, h("code", {}, `kafka-${answer.kind}-groups.sh`), "."),
    ];
  }
  if (answer.is_shared) return [...shared(answer, query), deleting];
  const columns = [["Partition", "name"], ["Begin", "number"], ["Committed", "number"], ["Last stable", "number"], ["Lag", "number"], ["Held back", "number"], ["Member", "name"]];
  const rows = answer.partitions.map((one) => [
    link("/records", { topic: one.topic, partition: one.partition, from: one.committed ?? "latest" }, `${one.topic}-${one.partition}`),
    number(one.begin),
    one.committed === null ? "nothing" : number(one.committed),
    number(one.stable),
    lagOf(one),
    one.end === null || one.stable === null ? "not known" : number(one.end - one.stable),
    one.member ?? "nobody",
  ]);
  return [
    facts(["protocol", answer.kind], ["state", answer.state ?? "not known"], ["coordinator", answer.coordinator], ["lag", lagOf(answer)]),
    h("h2", {}, counted(answer.member_count, "member")),
    members(answer),
    h("h2", {}, counted(answer.count, "partition")),
    answer.count === 0 ? h("p", { class: "empty" }, "The group has committed nothing and reads nothing.") : table("How far the group is", columns, rows),
    pager(path, query, answer.page, answer.pages),
    h("h2", {}, "Set it to other offsets"),
    resetting(answer, tools),
    deleting,
  ];
}

// A share group has no committed offsets: each record is done, or on its way.
function shared(answer, query) {
  const columns = [["Partition", "name"], ["Not done from", "number"], ["Lag", "number"], ["Held", "number"], ["To come again", "number"], ["Delivered", "name"], ["Held by", "name"]];
  const rows = answer.partitions.map((one) => [
    link("/records", { topic: one.topic, partition: one.partition, from: one.start }, `${one.topic}-${one.partition}`),
    number(one.start),
    lagOf(one),
    ...inFlight(one.in_flight),
  ]);
  return [
    facts(["protocol", answer.kind], ["state", answer.state ?? "not known"], ["coordinator", answer.coordinator], ["lag", lagOf(answer)]),
    h("h2", {}, counted(answer.member_count, "member")),
    members(answer),
    h("h2", {}, counted(answer.count, "partition")),
    answer.why_not === null ? null : h("p", { class: "held" }, `What is in flight is not known: ${answer.why_not}.`),
    answer.count === 0 ? h("p", { class: "empty" }, "The group has acquired nothing yet.") : table("What is not done", columns, rows),
    pager(path, query, answer.page, answer.pages),
  ];
}

function inFlight(told) {
  if (told === null) return ["not known", "not known", "", ""];
  const often = told.deliveries.filter(([times]) => times > 0).map(([times, count]) => `${counted(count, "record")} ${times === 1 ? "once" : `${times} times`}`);
  return [number(told.held), number(told.waiting), often.join(", "), told.holders.map(([member, count]) => `${member}: ${count}`).join(", ")];
}

function members(answer) {
  if (answer.member_count === 0) return h("p", {}, "Nobody reads under this group now.");
  const rows = answer.members.map((one) => [one.id, one.client, one.host, one.instance ?? "", number(one.partitions)]);
  const more = answer.member_count > answer.members.length ? `, the first ${answer.members.length}` : "";
  return table(`Members${more}`, [["Member", "name"], ["Client id", "name"], ["Host"], ["Instance", "name"], ["Partitions", "number"]], rows);
}

function resetting(answer, { change }) {
  const fields = [
    input("To earliest, latest, an offset, or a time", "to", "earliest", { required: true }),
    input("Only this topic (all the group knows)", "topic", ""),
  ];
  return form((values) => change("reset", { group: answer.name, ...values }), fields, "Show what it would do");
}

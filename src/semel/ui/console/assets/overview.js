// The first page: what holds readers back now, which duplicates were refused, and where to look next.

import { badge, counted, duration, h, lagOf, link, number, table, tile, tiles, verdicts } from "./elements.js";

export const path = "/overview";
export const name = "Overview";
export const question = "overview";
export const title = () => "Overview";
export const isLive = () => true;
export const hasAges = true;

export const words = [
  ["duplicates not stored", "Batches that a producer has sent again because it had no answer. The broker recognises their numbers and does not store them again."],
  ["open transaction", "A producer has begun it and has neither committed nor aborted it. Readers of committed records wait at its beginning."],
  ["lag", "How many offsets lie between what a group has committed and the last stable offset: what readers of committed records could have read by now."],
  ["outbox", "Messages that the application has added and that are not known to be in the log yet."],
  ["quarantine", "Messages and events that wait for a person."],
  ["audit", "semel audit has compared what was sent with what is stored, id by id."],
];

export function view(answer, query, tools) {
  const decisions = told(answer.decisions);
  return [
    tiles(
      duplicates(answer.decisions, tools.about),
      transactions(told(answer.overview)?.transactions, tools.now),
      groups(told(answer.overview)?.groups),
      outbox(answer.claims, tools.now),
      quarantine(answer.claims),
      audits(answer.audits),
      standbys(answer.standbys),
    ),
    decisions?.history ? verdicts(decisions.history) : null,
    troubles(answer),
    behind(told(answer.overview)?.groups),
    told(answer.overview) ? h("p", { class: "quiet" }, `${counted(answer.overview.brokers.length, "broker")}: ${answer.overview.brokers.join(", ")}. `, link("/topics", {}, "Topics"), ", ", link("/producers", {}, "producers"), ".") : null,
  ];
}

function told(part) {
  return part === undefined || part.error !== undefined ? null : part;
}

function duplicates(part, about) {
  const what = link("/decisions", {}, "duplicates not stored");
  if (!about.has_decisions) return tile("–", what, "of a broker of semel, with --decisions HOST:PORT");
  const counts = told(part)?.counts;
  if (!counts) return tile("?", what, "the broker does not tell them now", "held");
  const others = counts.gap + counts.fenced;
  return tile(number(counts.duplicate), what, [number(counts.accepted), " accepted", others ? `, ${others} refused as gaps or fenced` : ""], "good");
}

function transactions(found, now) {
  if (found === undefined) return null;
  if (found === null) return tile("?", link("/transactions", {}, "open transactions"), "the login of the console may not see them");
  const oldest = found.oldest;
  const part = found.looked_at < found.count ? ` of ${found.looked_at} that were asked` : "";
  const note = oldest === null ? "nobody waits for a producer" : `the oldest${part}, ${oldest.id}, for ${duration(now - oldest.began_ms)}`;
  return tile(number(found.count), link("/transactions", {}, found.count === 1 ? "open transaction" : "open transactions"), note, found.count ? "held" : null);
}

function groups(found) {
  if (found === undefined) return null;
  if (found === null) return tile("?", link("/groups", {}, "consumer groups"), "the login of the console may not see them");
  const part = found.looked_at < found.count ? ` of the first ${found.looked_at}` : "";
  return tile(number(found.count), link("/groups", {}, found.count === 1 ? "consumer group" : "consumer groups"), found.behind ? `${found.behind}${part} behind` : `none${part} is behind`, null);
}

function outbox(part, now) {
  const known = told(part)?.databases.filter((one) => one.outbox) ?? [];
  if (known.length === 0) return null;
  const waiting = known.reduce((sum, one) => sum + one.outbox.waiting, 0);
  const oldest = Math.min(...known.map((one) => one.outbox.oldest_ms ?? Infinity));
  const note = waiting ? `the oldest for ${duration(now - oldest)}` : "all are in the log";
  return tile(number(waiting), link("/claims", {}, waiting === 1 ? "message waits in the outbox" : "messages wait in the outbox"), note, null);
}

function quarantine(part) {
  const known = told(part)?.databases.filter((one) => one.error === null) ?? [];
  if (known.length === 0) return null;
  const refused = known.reduce((sum, one) => sum + (one.outbox?.quarantined ?? 0), 0);
  const aside = known.reduce((sum, one) => sum + asideIn(one.figures), 0);
  return tile(number(refused + aside), link("/claims", {}, "in quarantine"), refused + aside ? `${refused} put aside by the outbox, ${aside} by the inbox` : "nothing waits for a person", refused + aside ? "bad" : "good");
}

function asideIn(figures) {
  return Object.entries(figures).reduce((sum, [figure, value]) => (figure.startsWith("semel_inbox_quarantined") ? sum + value : sum), 0);
}

function audits(part) {
  const last = told(part)?.audits.find((one) => one.trouble === null);
  if (!last) return null;
  const wrong = last.lost + last.doubled;
  const others = [[last.foreign, "foreign"], [last.altered, "altered"]].filter(([count]) => count).map(([count, what]) => `, ${count} ${what}`);
  return tile(
    last.clean ? "0" : number(wrong),
    link("/audit", { audit: last.name }, "lost or doubled in the last audit"),
    last.clean ? ["of ", number(last.rows), " sent"] : `${last.lost} lost, ${last.doubled} doubled${others.join("")}`,
    last.clean ? "good" : "bad",
  );
}

function standbys(part) {
  const found = told(part);
  if (!found) return null;
  const awake = found.standbys.filter((one) => !one.is_silent).length;
  return tile(found.is_active ? number(found.epoch) : "nobody", link("/standbys", {}, found.is_active ? "is the epoch of the active broker" : "is active on the store"), `${counted(awake, "broker stands", "brokers stand")} by`, found.is_active ? null : "bad");
}

function behind(found) {
  if (!found?.most.length) return null;
  const rows = found.most.map((one) => [link("/group", { group: one.name }, one.name), lagOf(one), badge(one.state ?? "not known", one.state === "Stable" ? "good" : null)]);
  return table("Groups that are behind, the furthest first", [["Group", "name"], ["Lag", "number"], ["State"]], rows);
}

function troubles(answer) {
  const known = Object.values(answer).filter((part) => part.error !== undefined).map((part) => part.error);
  const databases = told(answer.claims)?.databases.filter((one) => one.error !== null).map((one) => `The database ${one.name}: ${one.error}`) ?? [];
  return [...known, ...databases].map((text) => h("p", { class: "bad" }, text));
}

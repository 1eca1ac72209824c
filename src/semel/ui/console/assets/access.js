// Who can log in to the cluster, and the access rules, with their changes.

import { check, choice, counted, filter, form, h, input, pager, table } from "./elements.js";

export const path = "/access";
export const name = "Access";
export const question = "access";
export const title = () => "Access";
export const isLive = () => true;

export const words = [
  ["user", "Who can log in to the brokers with a password, by SCRAM. The people who log in to this console are others: semel console user adds them."],
  ["principal", "Whom a rule is about: User:NAME, or User:* for everybody."],
  ["access rule", "Allows or denies a principal an operation on a resource. What no rule allows is denied, and a rule that denies counts more than those that allow."],
  ["resource", "cluster, or a kind and a name: topic:orders. The name * stands for every name; a rule for all names that begin so has ... behind it."],
];

export function view(answer, query, tools) {
  const { change, allowsChanges } = tools;
  return [
    filter(tools.go, path, {}, [input("Find in users and rules", "find", query.find, { type: "search" })], "Find"),
    h("h2", {}, "Users"),
    answer.users.error ? h("p", { class: "bad" }, answer.users.error) : users(answer.users, tools),
    allowsChanges ? form((values) => change("set_password", values), input("Name of a user", "user", "", { required: true }), "Add the user ...") : null,
    h("h2", {}, "Access rules"),
    answer.rules.error ? h("p", { class: "bad" }, answer.rules.error) : rules(answer.rules, query, tools),
    allowsChanges ? adding(change) : null,
  ];
}

function users(found, { change, allowsChanges }) {
  if (found.count === 0) return h("p", { class: "empty" }, "There is no user who logs in with a password.");
  const rows = found.users.map(({ user, mechanisms }) => [
    user,
    mechanisms.join(", "),
    allowsChanges ? [button("Password ...", `Password of ${user}`, () => change("set_password", { user })), " ", button("Remove ...", `Remove ${user}`, () => change("remove_user", { user }), "danger")] : h("code", {}, "semel users"),
  ]);
  const more = found.count > rows.length ? `, the first ${rows.length}` : "";
  return table(`${counted(found.count, "user")}${more}`, [["User", "name"], ["Mechanisms", "name"], ["What to do"]], rows);
}

function rules(found, query, { change, allowsChanges }) {
  if (found.count === 0) return h("p", { class: "empty" }, "There is no access rule.");
  const rows = found.rules.map((rule) => [
    rule.principal,
    rule.permission,
    rule.operations,
    `${rule.resource}${rule.prefixed ? "..." : ""}`,
    rule.host === "*" ? "any" : rule.host,
    allowsChanges ? button("Remove ...", `Remove ${rule.permission} ${rule.principal} ${rule.operations} ${rule.resource}`, () => change("remove_rule", rule), "danger") : h("code", {}, "semel acls"),
  ]);
  const columns = [["Principal", "name"], ["Permission"], ["Operation"], ["Resource", "name"], ["From"], ["What to do"]];
  return [table(counted(found.count, "access rule"), columns, rows), pager(path, query, found.page, found.pages)];
}

function adding(change) {
  const fields = [
    input("Principal, such as User:app", "principal", "", { required: true }),
    input("Operations, such as read describe", "operations", "", { required: true }),
    input("Resource, such as topic:orders", "resource", "", { required: true }),
    check("all names that begin so", "prefixed", false),
    choice("Permission", "permission", "allow", [["allow", "allow"], ["deny", "deny"]]),
    input("From address (empty: any)", "host", ""),
  ];
  return form((values) => change("add_rule", values), fields, "Add the rule ...");
}

function button(text, label, onclick, kind = null) {
  return h("button", { type: "button", class: kind, onclick, "aria-label": label }, text);
}

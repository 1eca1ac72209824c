// Shows what a change would do now, as the server plans it, and calls `agreed` with what the person has added.

import { h, input, number, table } from "./elements.js";

export function ask(plan, allowsChanges, agreed) {
  const submit = (event) => {
    event.preventDefault();
    const added = Object.fromEntries(new FormData(event.target));
    dialog.close();
    agreed({ ...plan.pinned, ...added, mark: plan.mark });
  };
  const button = h("button", { class: "danger", disabled: plan.typed !== null }, plan.button);
  const typed = plan.typed === null ? null : input(`Type ${plan.typed} to confirm it`, "typed", "", { required: true });
  typed?.addEventListener("input", (event) => (button.disabled = event.target.value !== plan.typed));
  const password = plan.asks_password ? input("Password", "password", "", { type: "password", required: true, autocomplete: "new-password" }) : null;
  const columns = plan.columns.map((title) => [title, "name"]);
  const dialog = h(
    "dialog",
    { "aria-label": plan.title },
    h("h2", {}, plan.title),
    plan.warns.map((one) => h("p", { class: "held" }, one)),
    plan.rows.length ? table("What it would do", columns, plan.rows.map((row) => row.map(shown))) : null,
    plan.says.map((one) => h("p", {}, one)),
    allowsChanges ? null : h("p", {}, "You may only look. ", plan.command ? [h("code", {}, plan.command), " does it."] : null),
    h(
      "form",
      { class: "login", onsubmit: submit },
      allowsChanges ? [typed, password] : null,
      h("p", {}, allowsChanges ? [button, " "] : null, h("button", { type: "button", onclick: () => dialog.close() }, allowsChanges ? "Leave it as it is" : "Close")),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function shown(cell) {
  return typeof cell === "number" || /^\d+$/.test(cell) ? number(cell) : cell;
}

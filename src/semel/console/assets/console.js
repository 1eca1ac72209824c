// Shows the page that belongs to the address, and keeps it as things are: one answer at first, then each change.

import { change, Failed, follow, get, session } from "./api.js";
import { h, link, morph } from "./elements.js";
import * as claims from "./claims.js";
import * as decisions from "./decisions.js";
import * as group from "./group.js";
import * as groups from "./groups.js";
import * as pipelines from "./pipelines.js";
import * as producers from "./producers.js";
import * as records from "./records.js";
import * as topic from "./topic.js";
import * as topics from "./topics.js";
import * as transactions from "./transactions.js";

// Each page has a path, a title, the words it uses, the question it asks of an address, and a view of the answer.
// Those with a `name` stand in the menu.
const PAGES = [topics, topic, records, transactions, producers, decisions, groups, group, claims, pipelines];

const RETRY_MS = 3000;

const main = document.getElementById("main");
const state = document.getElementById("state");
const notice = document.getElementById("notice");
const pause = document.getElementById("pause");
let about = { allows_changes: false };
let shown = null;
let isPaused = false;

// What is on the screen: a page, its address, the last answer, and the stream of the next ones.
class Shown {
  constructor(page, url) {
    this.page = page;
    this.query = Object.fromEntries(url.searchParams);
    this.question = typeof page.question === "function" ? page.question(this.query, about) : page.question;
    this.answer = null;
    this.stop = () => {};
    this.hasEnded = false;
  }

  async begin() {
    if (!this.question) return this.draw();
    try {
      this.take(await get(this.question, this.query));
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      this.fail(error.message);
    }
    this.follow();
  }

  follow() {
    this.stop();
    if (this.hasEnded || isPaused || document.hidden || !this.question || !this.page.isLive(this.query)) return;
    this.stop = follow(
      this.question,
      this.query,
      (answer) => (answer.error ? this.fail(answer.error) : this.take(answer)),
      (hasClosed) => this.lost(hasClosed),
    );
  }

  // The browser connects again by itself, unless the server has refused. Why, only a question can tell.
  async lost(hasClosed) {
    if (this.hasEnded) return;
    let isRefused = hasClosed;
    try {
      this.take(await get(this.question, this.query));
    } catch (error) {
      this.fail(error.message);
      isRefused = true;
    }
    if (!isRefused) return;
    this.stop();
    setTimeout(() => this.hasEnded || this.follow(), RETRY_MS);
  }

  take(answer) {
    if (this.hasEnded) return;
    this.answer = answer;
    say(isPaused ? "Paused." : this.page.isLive(this.query) ? "Live." : "");
    this.draw();
  }

  fail(message) {
    if (this.hasEnded) return;
    say(this.answer ? `${message} What is shown is as it was before. Trying again.` : message, true);
    if (!this.answer) morph(main, h("main", {}, heading(this.page.title(this.query)), h("p", { class: "empty" }, message)));
  }

  draw() {
    if (this.hasEnded) return;
    const tools = { go, tell, change: this.change, allowsChanges: about.allows_changes, now: Date.now() };
    const content = this.page.view(this.answer, this.query, tools);
    morph(main, h("main", {}, heading(this.page.title(this.query)), content, words(this.page.words)));
  }

  // Shows what would be done, does it if the person agrees, and says what came of it.
  change = (name, values, title, text, button) => {
    const done = async (dialog) => {
      dialog.close();
      try {
        tell((await change(name, values)).done);
        this.take(await get(this.question, this.query));
      } catch (error) {
        tell(error.message, true);
      }
    };
    const dialog = h(
      "dialog",
      { "aria-label": title },
      h("h2", {}, title),
      text.map((part) => h("div", { class: "said" }, part)),
      h(
        "p",
        {},
        button ? [h("button", { type: "button", class: "danger", onclick: () => done(dialog) }, button), " "] : null,
        h("button", { type: "button", onclick: () => dialog.close() }, button ? "Leave it as it is" : "Close"),
      ),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };

  end() {
    this.hasEnded = true;
    this.stop();
  }
}

function heading(text) {
  return h("h1", {}, text);
}

function words(pairs) {
  const list = pairs.map(([term, meaning]) => [h("dt", {}, term), h("dd", {}, meaning)]);
  return h("details", { class: "words" }, h("summary", {}, "What the words on this page mean"), h("dl", {}, list));
}

// How the page stands: live, paused, or what is wrong.
function say(text, isBad = false) {
  write(state, text, isBad);
}

// What a change has done. It stays until the next one, or the next page.
function tell(text, isBad = false) {
  write(notice, text, isBad);
}

function write(element, text, isBad) {
  if (element.textContent !== text) element.textContent = text;
  element.className = isBad ? "bad" : "";
}

const NOWHERE = {
  path: "",
  words: [],
  title: () => "There is no such page",
  isLive: () => false,
  view: () => h("p", { class: "empty" }, "The address names no page of the console. ", link("/topics", {}, "Go to the topics"), "."),
};

function show(isNew) {
  if (location.pathname === "/") history.replaceState(null, "", "/topics");
  shown?.end();
  const page = PAGES.find((one) => one.path === location.pathname) ?? NOWHERE;
  shown = new Shown(page, new URL(location.href));
  document.title = `${page.title(shown.query)} - semel console`;
  const menu = PAGES.filter((one) => one.name).map((one) => {
    const isHere = one === page || one.path === page.under;
    return h("li", {}, h("a", { href: one.path, "aria-current": isHere ? "page" : null }, one.name));
  });
  morph(document.getElementById("pages"), h("ul", {}, menu));
  main.replaceChildren();
  say("");
  tell("");
  shown.begin();
  if (isNew) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function go(target) {
  history.pushState(null, "", target);
  show(true);
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey && event.button === 0;
  if (!anchor || !isPlain || anchor.origin !== location.origin || anchor.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(anchor.href);
});
addEventListener("popstate", () => show(true));
document.addEventListener("visibilitychange", () => shown?.follow());
pause.onclick = () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  say(isPaused ? "Paused." : "");
  shown?.follow();
};

// The person's choice stays with the browser; without one it is that of the system.
function theme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
}
theme(localStorage.getItem("semel-theme"));
document.getElementById("theme").onclick = () => {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const chosen = isDark ? "light" : "dark";
  localStorage.setItem("semel-theme", chosen);
  theme(chosen);
};

try {
  about = await session();
  document.getElementById("cluster").textContent = about.bootstrap.join(", ");
  const rights = about.allows_changes ? "Changes are allowed." : "Nothing can be changed from here: start it with --allow-changes for that.";
  document.getElementById("about").textContent = `semel ${about.version}. ${rights}`;
  show(false);
  // Ages grow although nothing has changed.
  setInterval(() => {
    if (shown?.answer && shown.page.hasAges && !isPaused && !document.hidden) shown.draw();
  }, 1000);
} catch (error) {
  if (!(error instanceof Failed)) throw error;
  morph(main, h("main", {}, heading("Not let in"), h("p", { class: "empty" }, error.message)));
}

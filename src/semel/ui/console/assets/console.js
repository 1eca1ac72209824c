// Shows the page of the address, and keeps it up to date: first one answer, then each change.

import { change, Failed, follow, get, login, logout, session } from "./api.js";
import { form, h, input, link, morph } from "./elements.js";
import { ask } from "./plan.js";
import * as access from "./access.js";
import * as audit from "./audit.js";
import * as audits from "./audits.js";
import * as chaos from "./chaos.js";
import * as claims from "./claims.js";
import * as decisions from "./decisions.js";
import * as group from "./group.js";
import * as groups from "./groups.js";
import * as overview from "./overview.js";
import * as pipelines from "./pipelines.js";
import * as producers from "./producers.js";
import * as records from "./records.js";
import * as standbys from "./standbys.js";
import * as topic from "./topic.js";
import * as topics from "./topics.js";
import * as transactions from "./transactions.js";

// Each page has a path, a title, explanations of its words, a question for the server, and a view of the answer. Pages
// with a `name` are in the menu.
const MENU = [
  ["As it happens", [overview, decisions, transactions, producers]],
  ["The cluster", [topics, groups, access, standbys]],
  ["The application", [claims, pipelines]],
  ["The proof", [audits, chaos]],
];
const PAGES = [...MENU.flatMap(([, pages]) => pages), topic, records, group, audit];

const RETRY_MS = 3000;
const WANTED = "semel-wanted";

const main = document.getElementById("main");
const state = document.getElementById("state");
const notice = document.getElementById("notice");
const pause = document.getElementById("pause");
let about = { allows_changes: false };
let shown = null;
let isPaused = false;

// The page on the screen: its address, the last answer, and the stream of the next ones.
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
      if (isLoggedOut(error)) return this.askAgain();
      this.fail(error.message);
      // A page without a stream would stay without an answer.
      if (!this.page.isLive(this.query)) setTimeout(() => this.hasEnded || this.begin(), RETRY_MS);
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

  // The browser reconnects by itself, unless the server has refused; only another question shows why.
  async lost(hasClosed) {
    if (this.hasEnded) return;
    let isRefused = hasClosed;
    try {
      this.take(await get(this.question, this.query));
    } catch (error) {
      if (isLoggedOut(error)) {
        this.askAgain();
        return;
      }
      this.fail(error.message);
      isRefused = true;
    }
    if (!isRefused) return;
    this.stop();
    setTimeout(() => this.hasEnded || this.follow(), RETRY_MS);
  }

  // Asks for the name and the password, and then shows the same page.
  async askAgain() {
    if (this.hasEnded) return;
    this.end();
    say("");
    await begin();
  }

  take(answer) {
    if (this.hasEnded) return;
    this.answer = answer;
    const isLive = this.page.isLive(this.query) && !isPaused;
    say(isPaused ? "Paused." : isLive ? "Live." : "", isLive ? "live" : "");
    this.draw();
  }

  fail(message) {
    if (this.hasEnded) return;
    say(this.answer ? `${message} What is shown is as it was before. Trying again.` : message, "bad");
    if (!this.answer) morph(main, h("main", {}, heading(this.page.title(this.query)), h("p", { class: "empty" }, message)));
  }

  draw() {
    if (this.hasEnded) return;
    const tools = { go, about, change: this.change, allowsChanges: about.allows_changes, now: Date.now() };
    let content;
    try {
      content = this.page.view(this.answer, this.query, tools);
    } catch (error) {
      // The page was loaded from a console of another version. A sentence is better than an empty page.
      this.answer = null;
      this.fail("The console was started again in another version: load this page again.");
      reportError(error);
      return;
    }
    morph(main, h("main", {}, heading(this.page.title(this.query)), content, words(this.page.words)));
  }

  // Shows what a change would do now, does it if the person agrees, and shows the result.
  change = async (name, values) => {
    try {
      const plan = await get(name, values, "plan");
      const agreed = (added) => this.carryOut(name, { ...values, ...added }, plan.then);
      if (plan.title) ask(plan, about.allows_changes, agreed);
      else await agreed({});
    } catch (error) {
      tell(error.message, "bad");
    }
  };

  async carryOut(name, values, then) {
    try {
      const { done } = await change(name, values);
      if (then) go(then);
      tell(done);
      if (!then) this.take(await get(this.question, this.query));
    } catch (error) {
      tell(error.message, "bad");
    }
  }

  end() {
    this.hasEnded = true;
    this.stop();
  }
}

// Whether the session of a person who had logged in has ended.
function isLoggedOut(error) {
  return error.status === 403 && about.person;
}

function heading(text) {
  return h("h1", {}, text);
}

function words(pairs) {
  const list = pairs.map(([term, meaning]) => [h("dt", {}, term), h("dd", {}, meaning)]);
  return h("details", { class: "words" }, h("summary", {}, "What the words on this page mean"), h("dl", {}, list));
}

// The state of the page: live, paused, or an error.
function say(text, mood = "") {
  write(state, text, mood);
}

// The result of a change, which stays until the next change or page.
function tell(text, mood = "") {
  write(notice, text, mood);
}

function write(element, text, mood) {
  if (element.textContent !== text) element.textContent = text;
  if (element.className !== mood) element.className = mood;
}

const NOWHERE = {
  path: "",
  words: [],
  title: () => "There is no such page",
  isLive: () => false,
  view: () => h("p", { class: "empty" }, "The address names no page of the console. ", link("/overview", {}, "Go to the overview"), "."),
};

function show(isNew) {
  if (location.pathname === "/") history.replaceState(null, "", "/overview");
  shown?.end();
  const page = PAGES.find((one) => one.path === location.pathname) ?? NOWHERE;
  shown = new Shown(page, new URL(location.href));
  document.title = `${page.title(shown.query)} - semel console`;
  const menu = MENU.map(([title, pages]) => [
    h("h2", {}, title),
    h("ul", {}, pages.map((one) => {
      const isHere = one === page || one.path === page.under;
      return h("li", {}, h("a", { href: one.path, "aria-current": isHere ? "page" : null }, one.name));
    })),
  ]);
  morph(document.getElementById("pages"), h("nav", {}, h("div", {}, menu)));
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
  if (!anchor || !isPlain || anchor.hasAttribute("download") || anchor.origin !== location.origin || anchor.getAttribute("href").startsWith("#")) return;
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

// The browser remembers the person's choice; without one, the system's choice counts.
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

function showLogin() {
  const submit = async ({ user, password }) => {
    try {
      await login(user, password);
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      tell(error.message, "bad");
      return;
    }
    tell("");
    await begin();
  };
  const fields = [
    input("Name", "user", "", { required: true, autocomplete: "username" }),
    input("Password", "password", "", { required: true, type: "password", autocomplete: "current-password" }),
  ];
  morph(main, h("main", {}, heading("Log in"), form(submit, fields, "Log in", { class: "login" })));
  main.querySelector("input").focus();
}

function showPerson() {
  const leave = async () => {
    await logout();
    location.reload();
  };
  const content = about.person === null ? [] : [about.person, h("button", { type: "button", class: "link", onclick: leave }, "Log out")];
  document.getElementById("person").replaceChildren(...content);
}

// The page of a link that was opened before the browser was let in.
function goToWanted() {
  const wanted = sessionStorage.getItem(WANTED);
  sessionStorage.removeItem(WANTED);
  const isPage = wanted !== null && PAGES.some((one) => one.path === wanted.split("?")[0]);
  if (location.pathname === "/" && isPage) history.replaceState(null, "", wanted);
}

async function begin() {
  try {
    about = await session();
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    const door = await get("door", {}).catch(() => ({ people: false }));
    if (door.people) return showLogin();
    sessionStorage.setItem(WANTED, location.pathname + location.search);
    const then = error.status === 403 ? ". If you open it in this tab, you come back to the page of this address." : null;
    morph(main, h("main", {}, heading("Not let in"), h("p", { class: "empty" }, error.message, then)));
    return;
  }
  goToWanted();
  document.getElementById("cluster").textContent = about.bootstrap.join(", ");
  const why = about.person === null ? "Nothing can be changed from here: start it with --allow-changes for that." : "You may only look.";
  document.getElementById("about").textContent = `semel ${about.version}. ${about.allows_changes ? "Changes are allowed." : why}`;
  showPerson();
  show(false);
}

// Ages grow even if nothing has changed.
setInterval(() => {
  if (shown?.answer && shown.page.hasAges && !isPaused && !document.hidden) shown.draw();
}, 1000);
await begin();

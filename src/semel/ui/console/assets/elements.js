// Makes the elements of a page. Text is always a text node: no text from a cluster ever becomes markup.

const PROPERTIES = new Set(["onclick", "onsubmit"]);
const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; children that are null are left out.
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// Makes `old` equal to `fresh`, but changes only the differences, so that nothing flickers, and the person's focus,
// selection, opened details and typed text stay.
export function morph(old, fresh) {
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, place) => {
    const kept = before[place];
    if (kept === undefined) old.append(node);
    else if (!alike(kept, node)) old.replaceChild(node, kept);
    else if (kept.nodeType === Node.TEXT_NODE) {
      if (kept.data !== node.data) kept.data = node.data;
    } else {
      adopt(kept, node);
      morph(kept, node);
    }
  });
  for (const node of before.slice(after.length)) node.remove();
}

function alike(one, other) {
  return one.nodeName === other.nodeName && (one.nodeType !== Node.ELEMENT_NODE || one.id === other.id);
}

function adopt(kept, node) {
  for (const { name } of [...kept.attributes]) {
    // Whether details are open is the person's choice.
    if (!node.hasAttribute(name) && name !== "open") kept.removeAttribute(name);
  }
  for (const { name, value } of [...node.attributes]) {
    if (kept.getAttribute(name) !== value) kept.setAttribute(name, value);
  }
  for (const name of PROPERTIES) if (kept[name] !== node[name]) kept[name] = node[name];
}

// An address within the console.
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

export function link(path, query, ...children) {
  return h("a", { href: address(path, query) }, ...children);
}

// Columns are [title, kind]; kind "number" is aligned right, and "name" may break into lines. A row is its cells, or an
// object with cells and a class.
export function table(caption, columns, rows) {
  const head = columns.map(([title, kind]) => h("th", { scope: "col", class: kind === "number" ? kind : null }, title));
  const body = rows.map((row) => {
    const cells = Array.isArray(row) ? row : row.cells;
    return h(
      "tr",
      { class: row.class },
      cells.map((cell, place) => {
        const kind = columns[place][1];
        if (place === 0) return h("th", { scope: "row", class: kind ?? null }, cell);
        return h("td", { class: kind ?? null }, cell);
      }),
    );
  });
  const sheet = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return h("div", { class: "sheet", role: "region", "aria-label": caption, tabindex: "0" }, sheet);
}

// A whole number with its thousands set apart by space, not by characters, so that a person who copies it gets the
// number.
export function number(value) {
  if (value === null || value === undefined) return "not known";
  const text = String(value);
  if (!/^-?\d{5,}$/.test(text)) return text;
  const parts = text.split(/(?=(?:\d{3})+$)/);
  return h("span", { class: "digits" }, parts.map((part) => h("span", {}, part)));
}

// A lag in records: the number, or the most that it can be where the console has not counted all of them.
export function lagOf(one) {
  return one.lag_is_exact ? number(one.lag) : ["at most ", number(one.lag)];
}

export function bytes(value) {
  if (value === null || value === undefined) return "not known";
  let size = Number(value);
  let unit = "B";
  for (const next of ["KB", "MB", "GB", "TB"]) {
    if (size < 1000) break;
    size /= 1000;
    unit = next;
  }
  return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
}

// A time in the browser's time zone, with UTC below.
export function time(ms) {
  // So brokers say that there is no time.
  if (Number(ms) === -1 && ms !== null) return "none";
  const date = new Date(Number(ms));
  if (ms === null || ms === undefined || Number.isNaN(date.getTime())) return ms === null || ms === undefined ? "not known" : `${ms} ms`;
  const two = (part) => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const local = `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const utc = date.toISOString();
  return h("time", { datetime: utc }, h("span", { class: "local" }, local), h("span", { class: "utc" }, ` ${utc}`));
}

export function duration(ms) {
  const seconds = Math.max(Math.floor(ms / 1000), 0);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

export function counted(count, one, several) {
  return `${count} ${Number(count) === 1 ? one : several ?? `${one}s`}`;
}

export function facts(...pairs) {
  const shown = pairs.filter((pair) => pair !== null);
  return h("dl", { class: "facts" }, shown.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

// A large figure, what it counts, and a sentence; `mood` is good, bad, held or nothing.
export function tile(figure, what, note = null, mood = null) {
  const classes = mood ? `tile ${mood}` : "tile";
  return h("li", { class: classes }, h("div", { class: "figure" }, figure), h("p", { class: "what" }, what), note === null ? null : h("p", { class: "note" }, note));
}

export function tiles(...some) {
  return h("ul", { class: "tiles" }, some);
}

export function badge(text, kind) {
  return h("span", { class: kind ? `badge ${kind}` : "badge" }, text);
}

// A chart from the server's shapes; the style sheet of all charts colours their classes.
export function drawing(chart) {
  const paths = chart.shapes.map((shape) => filled(document.createElementNS(SVG, "path"), { class: shape.kind, d: shape.path }, []));
  const frame = { viewBox: `0 0 ${chart.width} ${chart.height}`, preserveAspectRatio: "none", role: "img", "aria-label": chart.title };
  return filled(document.createElementNS(SVG, "svg"), frame, paths);
}

// A legend, from pairs of a shape's class and its meaning.
export function legend(...entries) {
  return h("ul", { class: "legend" }, entries.map(([kind, ...said]) => h("li", {}, h("span", { class: `swatch ${kind}` }), h("span", {}, said))));
}

// A chart of the verdicts of the last seconds, with its scales.
export function verdicts(history) {
  const most = [history.accepted_max ? `at most ${history.accepted_max} accepted` : null, history.others_max ? `${history.others_max} not stored` : null].filter(Boolean);
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, "Batches in each second. What was not stored stands above the line, on a scale of its own."),
    h("div", { class: "plot" }, drawing(history.chart)),
    h("div", { class: "axis" }, h("span", {}, `${history.seconds} s ago`), most.length ? h("span", {}, `${most.join(" and ")} in a second`) : null, h("span", {}, "now")),
    legend(["stored", "accepted"], ["absorbed", "duplicate, not stored"], ["gap", "gap, refused"], ["fenced", "fenced, refused"]),
  );
}

// A form whose fields become the query of an address, so that a search can be sent as a link.
export function filter(go, path, kept, fields, button = "Show") {
  return form((values) => go(address(path, { ...kept, ...values })), fields, button, { class: "filter", role: "search" });
}

// A form that calls `submit` with its values.
export function form(submit, fields, button, attributes = { class: "filter" }) {
  const onsubmit = (event) => {
    event.preventDefault();
    return submit(Object.fromEntries(new FormData(event.target)));
  };
  return h("form", { ...attributes, onsubmit }, fields, h("button", {}, button));
}

export function input(label, name, value, more = {}) {
  return h("label", {}, label, h("input", { name, value: value ?? "", autocomplete: "off", ...more }));
}

// Options are [value, text].
export function choice(label, name, value, options) {
  return h("label", {}, label, h("select", { name }, options.map(([one, text]) => h("option", { value: one, selected: one === value }, text))));
}

export function check(label, name, isOn) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", name, value: "1", checked: isOn }), label);
}

// Links to the other pages of a list.
export function pager(path, query, page, pages) {
  if (pages <= 1) return null;
  const to = (other, text) => (other >= 1 && other <= pages ? link(path, { ...query, page: other }, text) : null);
  const here = h("span", {}, `Page ${page} of ${pages}`);
  return h("nav", { class: "pager", "aria-label": "Pages of the list" }, to(page - 1, "Page before"), here, to(page + 1, "Next page"));
}

// Indents JSON without reading its values: numbers keep their digits, and keys that are there twice stay.

const OPENING = { "{": "}", "[": "]" };
// Nobody reads what is nested deeper. The spaces in front of its lines would be a thousand times as much as the text.
const DEPTH_MAX = 64;

// The text in lines; null for text that is no object or array of JSON, or is nested too deep.
export function indented(text) {
  try {
    const value = JSON.parse(text);
    if (typeof value !== "object" || value === null) return null;
  } catch {
    return null;
  }
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  let lines = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [place, part] of parts.entries()) {
    const isEmpty = OPENING[parts[place - 1]] === part;
    if (part in OPENING) {
      depth += 1;
      if (depth > DEPTH_MAX) return null;
      lines += part + (parts[place + 1] === OPENING[part] ? "" : line());
    } else if (part === "}" || part === "]") {
      depth -= 1;
      lines += (isEmpty ? "" : line()) + part;
    } else if (part === ",") {
      lines += part + line();
    } else {
      lines += part === ":" ? ": " : part;
    }
  }
  return lines;
}

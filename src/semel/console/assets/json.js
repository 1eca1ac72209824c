// Indents JSON without reading its values: numbers keep their digits, and keys that are there twice stay.

const OPENING = { "{": "}", "[": "]" };

// The text in lines; null for text that is no object or array of JSON.
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
  parts.forEach((part, place) => {
    const isEmpty = OPENING[parts[place - 1]] === part;
    if (part in OPENING) {
      depth += 1;
      lines += part + (parts[place + 1] === OPENING[part] ? "" : line());
    } else if (part === "}" || part === "]") {
      depth -= 1;
      lines += (isEmpty ? "" : line()) + part;
    } else if (part === ",") {
      lines += part + line();
    } else {
      lines += part === ":" ? ": " : part;
    }
  });
  return lines;
}

// Sends questions and changes to the console's server; `follow` gets new answers for as long as a page is shown.

export class Failed extends Error {
  // The status of the answer; 0 if there was none.
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let changeToken = "";

export async function session() {
  const told = await get("session", {});
  changeToken = told.change_token;
  return told;
}

export async function get(question, query, area = "api") {
  return answered(await reached(fetch(`/${area}/${question}?${new URLSearchParams(query)}`)));
}

export async function change(name, values) {
  const headers = { "Content-Type": "application/json", "X-Semel-Change": changeToken };
  return answered(await reached(fetch(`/do/${name}`, { method: "POST", headers, body: JSON.stringify(values) })));
}

export async function login(user, password) {
  return posted("/login", { user, password });
}

export async function logout() {
  return posted("/logout", {});
}

async function posted(path, values) {
  const headers = { "Content-Type": "application/json" };
  return answered(await reached(fetch(path, { method: "POST", headers, body: JSON.stringify(values) })));
}

// Calls `tell` with each answer; the function that it returns ends this.
export function follow(question, query, tell, lost) {
  const source = new EventSource(`/events/${question}?${new URLSearchParams(query)}`);
  source.onmessage = (event) => tell(JSON.parse(event.data));
  source.onerror = () => lost(source.readyState === EventSource.CLOSED);
  return () => source.close();
}

async function reached(response) {
  try {
    return await response;
  } catch {
    throw new Failed("The console itself does not answer: has `semel console` been stopped?");
  }
}

async function answered(response) {
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Failed(`The console answered ${response.status} and nothing that can be read.`);
  }
  if (!response.ok) throw new Failed(answer.error, response.status);
  return answer;
}

// What the page asks of its server: calls with the key, answers as events.

const KEY = "moed-key"; // of this tab alone

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

// A refusal in the server's own words.
export class Refusal extends Error {
  constructor(status, { message, param, code }) {
    super(param && !message.includes(param) ? `${param}: ${message}` : message);
    this.status = status;
    this.code = code;
  }
}

async function refusalOf(answer) {
  const text = await answer.text();
  try {
    return new Refusal(answer.status, JSON.parse(text).error);
  } catch {
    return new Refusal(answer.status, { message: text || `the server answers with status ${answer.status}` });
  }
}

export async function call(path, { body, signal } = {}) {
  const headers = {};
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  if (body) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { message: `the server is not reached (${error.message})` });
  }
  if (!answer.ok) throw await refusalOf(answer);
  return answer;
}

// The JSON of every event until "[DONE]" or the end.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (unread + value).split("\n\n");
      unread = parts.pop();
      for (const part of parts) {
        if (part.startsWith(":")) continue; // a comment: the stream goes on
        const data = part.replace(/^data: /, "");
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new Refusal(answer.status, event.error);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

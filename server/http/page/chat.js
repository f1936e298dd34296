// The conversation: what was said, asking, stopping. Whatever the model or the user writes is text, never markup.
import { call, events } from "/page/events.js";

function add(parent, name, className, text = "") {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return parent.appendChild(element);
}

const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(milliseconds < 10000 ? 2 : 1)} s`;

// One answer as it comes.
class Answer {
  constructor(log) {
    this.asked = performance.now();
    this.element = add(log, "article", "turn answer");
    this.element.setAttribute("aria-label", "Model");
    this.element.setAttribute("aria-busy", "true");
    this.text = "";
    this.finish = "";
    this.usage = null;
  }

  take({ choices: [choice], usage }) {
    if (usage) this.usage = usage;
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const { content, reasoning_content: reasoning } = choice.delta;
    if (!content && !reasoning) return;
    this.last = performance.now();
    this.first ??= this.last;
    if (reasoning) this.addReasoning(reasoning);
    if (content) this.addText(content);
  }

  addReasoning(text) {
    if (!this.reasoning) {
      const details = document.createElement("details");
      details.className = "reasoning";
      add(details, "summary", "", "Reasoning");
      this.reasoning = add(details, "p", "text");
      this.element.append(details);
    }
    this.reasoning.append(text);
  }

  addText(text) {
    this.text += text;
    this.words ??= add(this.element, "p", "text");
    this.words.append(text);
  }

  // "42 tokens, 310 tokens/s, first after 0.12 s, ended by length"
  end(stopped) {
    this.element.removeAttribute("aria-busy");
    const said = [];
    if (this.usage) {
      const tokens = this.usage.completion_tokens;
      said.push(`${tokens} token${tokens === 1 ? "" : "s"}`);
      if (tokens > 2 && this.last > this.first) {
        said.push(`${((tokens - 1) / ((this.last - this.first) / 1000)).toPrecision(3)} tokens/s`);
      }
      const cached = this.usage.prompt_tokens_details?.cached_tokens;
      if (cached) said.push(`${cached} of ${this.usage.prompt_tokens} prompt tokens known`);
    }
    if (this.first) said.push(`first after ${seconds(this.first - this.asked)}`);
    if (this.finish === "length") said.push("cut off by the number of tokens");
    if (stopped) said.push("stopped");
    add(this.element, "p", "note", said.join(" · "));
  }
}

export class Conversation {
  // `settings()`: what a request says beside its messages. `onState(answering)`, `onRefusal(error)`.
  constructor(log, settings, onState, onRefusal) {
    Object.assign(this, { log, settings, onState, onRefusal, messages: [], abort: null });
  }

  get answering() {
    return this.abort !== null;
  }

  stop() {
    this.abort?.abort();
  }

  clear() {
    this.stop();
    this.messages = [];
    for (const turn of this.log.querySelectorAll(".turn")) turn.remove();
  }

  // False where nothing was answered: the question is not part of the conversation then, and is shown until the next one.
  async ask(text) {
    const abort = (this.abort = new AbortController());
    const { messages } = this;
    for (const refused of this.log.querySelectorAll(".refused")) refused.remove();
    const question = add(this.log, "article", "turn question", text);
    question.setAttribute("aria-label", "You");
    const asked = { role: "user", content: text };
    const answer = new Answer(this.log);
    this.follow(true);
    this.onState(true);
    let refusal = null;
    try {
      const body = { ...this.settings(), messages: [...messages, asked], stream: true, stream_options: { include_usage: true } };
      for await (const event of events(await call("/v1/chat/completions", { body, signal: abort.signal }))) {
        const following = this.following();
        answer.take(event);
        this.follow(following);
      }
      if (!answer.finish) refusal = new Error("the answer broke off: the connection has ended");
    } catch (error) {
      if (!abort.signal.aborted) refusal = error;
    }
    const kept = answer.text !== "" || (!refusal && !abort.signal.aborted);
    if (kept) messages.push(asked, { role: "assistant", content: answer.text });
    answer.end(abort.signal.aborted);
    if (refusal) this.tell(answer, refusal);
    if (!kept) for (const { classList } of [question, answer.element]) classList.add("refused");
    if (this.abort === abort) this.abort = null;
    this.onState(this.answering);
    return kept || this.messages !== messages; // cleared meanwhile
  }

  tell(answer, refusal) {
    const note = add(answer.element, "p", "refusal", refusal.message);
    note.setAttribute("role", "alert");
    this.follow(true);
    this.onRefusal(refusal);
  }

  // Whoever has scrolled up to read is left there.
  following() {
    const end = Math.min(this.log.getBoundingClientRect().bottom, innerHeight);
    return this.log.lastElementChild.getBoundingClientRect().bottom < end + 40;
  }

  follow(yes) {
    if (yes) this.log.lastElementChild.scrollIntoView({ block: "end" });
  }
}

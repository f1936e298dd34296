// The page put together: settings, the conversation, the map of experts.
import { Conversation } from "/page/chat.js";
import { call, key } from "/page/events.js";
import { ExpertMap, HAPPENINGS, watchExperts } from "/page/experts.js";
import { ExpertCanvas } from "/page/experts_canvas.js";

const $ = (id) => document.getElementById(id);
const MEBI = 1 << 20;
const STATES = { resident: "resident", lower: "at a lower precision", absent: "not resident" };
const EVENTS = { hit: "hit", missed: "missed, waited for", read: "read ahead", lowered: "lowered", skipped: "skipped" };

// Settings

function settings() {
  const wanted = { model: $("model").value };
  if ($("temperature").value) wanted.temperature = Number($("temperature").value);
  if ($("most-tokens").value) wanted.max_completion_tokens = Number($("most-tokens").value);
  if ($("fidelity").value) wanted.fidelity = $("fidelity").value;
  return wanted;
}

function refused(error) {
  if (error.status !== 401) return;
  $("settings").open = true;
  $("key").focus();
}

async function loadModels() {
  try {
    const { data } = await (await call("/v1/models")).json();
    $("model").replaceChildren(...data.map(({ id }) => new Option(id)));
    $("served").textContent = data[0].max_model_len ? `${data[0].id}, context of ${data[0].max_model_len} tokens` : data[0].id;
    $("status").textContent = "";
  } catch (error) {
    $("status").textContent = error.message;
    refused(error);
  }
}

// The conversation

const conversation = new Conversation($("turns"), settings, showState, refused);

function showState(answering) {
  $("send").hidden = answering;
  $("stop").hidden = !answering;
  $("greeting").hidden = $("turns").querySelector(".turn") !== null;
  $("status").textContent = answering ? "The model answers." : "";
}

function fitPrompt() {
  $("prompt").style.height = "auto";
  $("prompt").style.height = `${$("prompt").scrollHeight + 2}px`;
}

async function ask() {
  const text = $("prompt").value;
  if (conversation.answering || !text.trim()) return;
  if (!$("model").value) await loadModels();
  $("prompt").value = "";
  fitPrompt();
  map.restart();
  const kept = await conversation.ask(text);
  if (!kept && !$("prompt").value) $("prompt").value = text; // to be sent again
  fitPrompt();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask();
});
$("prompt").addEventListener("input", fitPrompt);
$("stop").addEventListener("click", () => {
  conversation.stop();
  $("prompt").focus();
});
$("clear").addEventListener("click", () => {
  conversation.clear();
  showState(false);
  $("prompt").focus();
});

// The map

const map = new ExpertMap();
const canvas = new ExpertCanvas($("map"), map);
let watching = null;

function put(list, rows) {
  while (list.childElementCount < 2 * rows.length) list.append(document.createElement("dt"), document.createElement("dd"));
  rows.forEach(([name, value], i) => {
    list.children[2 * i].textContent = name;
    list.children[2 * i + 1].textContent = value;
  });
}

const mebi = (bytes) => (bytes / MEBI).toFixed(bytes < 100 * MEBI ? 1 : 0);

function showTotals() {
  const { totals } = map;
  const rate = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB/s`;
  put($("totals"), [
    ["Hit ratio", totals.hit_ratio > 0 || totals.read_bytes_per_second > 0 ? `${(100 * totals.hit_ratio).toFixed(1)} %` : "–"],
    ["Read", rate(totals.read_bytes_per_second)],
    ["Time per token", totals.mean_tpot_seconds > 0 ? `${(1000 * totals.mean_tpot_seconds).toPrecision(3)} ms` : "–"],
    ["Resident", `${map.residents} of ${map.cells}`],
    ["Expert cache", `${mebi(totals.cache_bytes)} of ${mebi(totals.cache_capacity_bytes)} MiB`],
    ...(totals.device_capacity_bytes > 0
      ? [["On the device", `${map.residentsOnDevice}: ${mebi(totals.device_bytes)} of ${mebi(totals.device_capacity_bytes)} MiB`]]
      : []),
    ["Memory budget", `${mebi(totals.memory_budget_bytes)} MiB`],
  ]);
  for (const what of HAPPENINGS) $(`seen-${what}`).textContent = map.seen[what].toLocaleString("en");
}

function makeLegend() {
  const item = ([colour, words]) => {
    const line = document.createElement("li");
    line.append(document.createElement("span"), words, " ", document.createElement("b"));
    line.firstChild.className = `swatch ${colour}`;
    line.lastChild.id = `seen-${colour}`;
    return line;
  };
  $("states").replaceChildren(...Object.entries(STATES).map(item));
  $("happenings").replaceChildren(...Object.entries(EVENTS).map(item));
}

function showEvent(event) {
  $("map-status").textContent = "";
  const changes = map.apply(event);
  canvas.show(changes, event.whole);
  showTotals();
  if (canvas.cursor >= 0 && changes.some(([cell]) => cell === canvas.cursor)) tell(canvas.cursor, false);
}

function endWatch() {
  watching?.abort();
  watching = null;
}

// While nobody sees the map nobody asks.
function watchWhereSeen() {
  const seen = !document.hidden && $("show-experts").getAttribute("aria-expanded") === "true";
  if (!seen) return endWatch();
  if (watching) return;
  watching = new AbortController();
  watchExperts(watching.signal, showEvent, (error) => ($("map-status").textContent = error.message));
}

function tell(cell, aloud) {
  const { x, y } = canvas.placeOf(cell);
  const { tip, frame } = { tip: $("tip"), frame: $("map-frame") };
  tip.textContent = map.describe(cell);
  tip.hidden = false;
  const left = Math.min(x - frame.scrollLeft - tip.offsetWidth / 2, frame.clientWidth - tip.offsetWidth);
  tip.style.transform = `translate(${Math.max(left, 0)}px, ${y + canvas.tall}px)`;
  if (aloud) $("cell").textContent = map.describe(cell);
}

function point(cell, aloud = false) {
  if (cell !== canvas.cursor) canvas.point(cell);
  if (cell < 0) {
    $("tip").hidden = true;
    $("cell").textContent = "";
  } else {
    tell(cell, aloud);
  }
}

$("map").addEventListener("pointermove", (event) => point(canvas.cellAt(event)));
$("map").addEventListener("pointerleave", () => point(-1));
$("map").addEventListener("blur", () => point(-1));
$("map").addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.experts, ArrowDown: map.experts };
  if (event.key === "Escape") return point(-1);
  if (!(event.key in steps) || !map.cells) return;
  event.preventDefault();
  const to = canvas.cursor < 0 ? 0 : canvas.cursor + steps[event.key];
  if (to < 0 || to >= map.cells) return;
  const { x } = canvas.placeOf(to);
  $("map-frame").scrollLeft += Math.max(x + 20 - $("map-frame").scrollLeft - $("map-frame").clientWidth, 0);
  $("map-frame").scrollLeft -= Math.max($("map-frame").scrollLeft + 40 - x, 0);
  point(to, true);
});

$("show-experts").addEventListener("click", () => {
  const open = $("show-experts").getAttribute("aria-expanded") !== "true";
  $("show-experts").setAttribute("aria-expanded", open);
  $("experts").hidden = !open;
  watchWhereSeen();
});
document.addEventListener("visibilitychange", watchWhereSeen);

$("key").value = key.get();
$("key").addEventListener("change", () => {
  key.set($("key").value.trim());
  loadModels();
  endWatch();
  watchWhereSeen();
});

makeLegend();
if (matchMedia("(max-width: 800px)").matches) $("show-experts").click();
loadModels();
watchWhereSeen();

export { canvas, conversation, map };

"use strict";

// One session at a time. Everything that a model or an environment wrote is shown as text, never as HTML.
const element = (id) => document.getElementById(id);
let session = null;

async function ask(method, path, body) {
  const headers = {};
  const key = element("key").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = response.status === 204 ? null : await response.json();
  if (response.status === 401) throw refused(key);
  if (!response.ok) throw new Error(answer.error ? answer.error.message : `HTTP ${response.status}`);
  return answer;
}

// The server requires a key, or another one: show the field for it, and hide the rest.
function refused(key) {
  element("connecting").hidden = false;
  element("opening").hidden = element("start").hidden = true;
  element("about").textContent = "not connected";
  element("key").focus();
  return new Error(key ? "The server rejected this API key." : "");
}

function show(id, text) {
  element(id).textContent = text;
  element(id).hidden = !text;
}

// Buttons are disabled during a request; a failure is shown and changes nothing.
async function guarded(work) {
  const buttons = document.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  show("problem", "");
  try {
    await work();
  } catch (error) {
    show("problem", error.message);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
    setActing(session !== null && !session.done);
  }
}

function setActing(possible) {
  element("acting").hidden = !possible;
}

// The action; the whole response, with thoughts and tags, on demand.
function said(turn) {
  return turn.action && turn.action !== turn.text.trim() ? [turn.action, turn.text] : [turn.text];
}

function line(kind, who, [text, whole]) {
  const item = document.createElement("li");
  item.className = kind;
  const label = document.createElement("span");
  label.className = "who";
  label.textContent = who;
  item.append(label);
  item.append(block(text));
  if (whole) {
    const more = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "full response";
    more.append(summary, block(whole));
    item.append(more);
  }
  element("turns").append(item);
  item.scrollIntoView({ block: "nearest" });
}

function block(text) {
  const found = document.createElement("pre");
  found.textContent = text;
  return found;
}

function taskText(task) {
  try {
    const chat = JSON.parse(task);
    if (Array.isArray(chat.messages)) return chat.messages.map((m) => `${m.role}: ${m.content}`).join("\n");
  } catch {
    // An ordinary observation.
  }
  return task;
}

function showTurn(turn, number) {
  const who = turn.info.by === "human" ? "you" : `agent (${turn.info.checkpoint})`;
  if (turn.text) line(turn.info.by, `turn ${number} \u00b7 ${who}`, said(turn));
  const reward = turn.reward ? ` \u00b7 reward ${turn.reward}` : "";
  line("environment", `environment${reward}${turn.info.valid === false ? " \u00b7 invalid action" : ""}`, [turn.observation]);
  const outcome = turn.info.outcome;
  if (outcome) {
    const result = outcome.success ? "solved" : "not solved";
    // Shown only at the end, since the name of a task may reveal its answer.
    element("outcome").className = outcome.success ? "solved" : "unsolved";
    show("outcome", `${result}: return ${outcome.return}, ${outcome.end_cause} (task ${session.task_id})`);
  }
}

async function open() {
  if (session) await ask("DELETE", `agent/sessions/${session.id}`).catch(() => {});
  session = null;
  const body = { seed: Number(element("seed").value || 0) };
  if (element("task").value.trim()) body.task_id = element("task").value.trim();
  if (element("temperature").value) body.temperature = Number(element("temperature").value);
  session = await ask("POST", "agent/sessions", body);
  element("turns").replaceChildren();
  show("outcome", "");
  show("facts", `${session.env} \u00b7 at most ${session.max_turns} turns \u00b7 context: ${session.context}`);
  line("environment", "task", [taskText(session.task)]);
  element("start").hidden = true;
  element("episode").hidden = false;
}

async function step(body) {
  const turn = await ask("POST", `agent/sessions/${session.id}/step`, body);
  session.turns.push(turn);
  session.done = turn.done;
  showTurn(turn, session.turns.length);
}

async function playToTheEnd() {
  while (!session.done) await step({});
}

async function playAction() {
  await step({ action: element("action").value });
  element("action").value = "";
}

async function greet() {
  const about = await ask("GET", "agent/about");
  show("about", `${about.model} \u00b7 checkpoint ${about.checkpoint}`);
  element("connecting").hidden = true;
  element("opening").hidden = false;
  element("start").hidden = session !== null;
  facts({
    model: about.model,
    checkpoint: about.checkpoint,
    environment: about.env,
    "open sessions": `${about.sessions} of ${about.max_sessions}`,
  });
  element("example").textContent = example(about);
}

function facts(values) {
  const pairs = Object.entries(values).map(([name, value]) => {
    const pair = document.createElement("div");
    const [term, told] = ["dt", "dd"].map((tag) => document.createElement(tag));
    [term.textContent, told.textContent] = [name, value];
    pair.append(term, told);
    return pair;
  });
  element("served").replaceChildren(...pairs);
}

function example({ model, example: content }) {
  const key = element("key").value ? ' -H "Authorization: Bearer $API_KEY" \\\n ' : "";
  const body = JSON.stringify({ model, messages: [{ role: "user", content }] }).replaceAll("'", "'\\''");
  return `curl ${location.origin}/v1/chat/completions \\\n ${key} -H 'Content-Type: application/json' \\\n  -d '${body}'`;
}

element("connecting").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(greet);
});
element("opening").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(open);
});
element("agent").addEventListener("click", () => guarded(() => step({})));
element("rest").addEventListener("click", () => guarded(playToTheEnd));
element("acting").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(playAction);
});
guarded(greet);

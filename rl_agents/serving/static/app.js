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
  if (!response.ok) throw new Error(answer.error ? answer.error.message : `HTTP ${response.status}`);
  return answer;
}

function show(id, text) {
  element(id).textContent = text;
  element(id).hidden = !text;
}

// Buttons rest while a request is under way; a failure is shown and changes nothing.
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
  for (const id of ["agent", "rest", "play", "action"]) element(id).disabled = !possible;
}

function line(kind, who, texts) {
  const item = document.createElement("li");
  item.className = kind;
  const label = document.createElement("span");
  label.className = "who";
  label.textContent = who;
  item.append(label);
  for (const text of texts) {
    const block = document.createElement("pre");
    block.textContent = text;
    item.append(block);
  }
  element("turns").append(item);
  item.scrollIntoView({ block: "nearest" });
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
  if (turn.text) line(turn.info.by, `turn ${number}, ${who}`, [turn.text]);
  const reward = turn.reward ? `, reward ${turn.reward}` : "";
  line("environment", `environment${reward}${turn.info.valid === false ? ", not understood" : ""}`, [turn.observation]);
  const outcome = turn.info.outcome;
  if (outcome) {
    const result = outcome.success ? "solved" : "not solved";
    // Only now: the name of a task may give its answer away.
    show("outcome", `${result}: return ${outcome.return}, ${outcome.end_cause} (task ${session.task_id})`);
  }
}

async function open() {
  if (session) await ask("DELETE", `agent/sessions/${session.id}`).catch(() => {});
  session = null;
  const body = { env: element("env").value, seed: Number(element("seed").value || 0) };
  if (element("task").value.trim()) body.task_id = element("task").value.trim();
  if (element("temperature").value) body.temperature = Number(element("temperature").value);
  session = await ask("POST", "agent/sessions", body);
  element("turns").replaceChildren();
  show("outcome", "");
  show("facts", `${session.env}, at most ${session.max_turns} turns, context ${session.context}`);
  line("environment", "task", [taskText(session.task)]);
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
  show("about", `${about.model}, checkpoint ${about.checkpoint}`);
  const options = about.environments.map((name) => new Option(name, name));
  element("env").replaceChildren(...options);
}

element("opening").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(async () => {
    if (!element("env").value) await greet();
    await open();
  });
});
element("agent").addEventListener("click", () => guarded(() => step({})));
element("rest").addEventListener("click", () => guarded(playToTheEnd));
element("acting").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(playAction);
});
guarded(greet);

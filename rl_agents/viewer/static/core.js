"use strict";
// The namespace of all scripts, element creation, requests to the server (or an export), and routes.
// Text is never parsed as HTML: elements are created by name, and text becomes text nodes.
window.view = {};

(() => {
  const V = window.view;
  const SVG = "http://www.w3.org/2000/svg";
  const POLL_MS = 2000;
  const REST = 100;
  const LONGEST_REST_MS = 10000;
  const TOKEN = "rl_agents.token";

  // --- elements ----------------------------------------------------------------------------------------------------

  // The first part may be an object of attributes; the others are children.
  function fill(node, parts) {
    const attributes = parts[0]?.constructor === Object ? parts.shift() : {};
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
      else if (name === "style") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of parts.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }
  // el.div({ class: "wide" }, "text", child) and so on; svg likewise.
  const tags = (create) =>
    new Proxy(
      {},
      {
        get:
          (_, name) =>
          (...parts) =>
            fill(create(name), parts),
      },
    );
  V.el = tags((name) => document.createElement(name));
  V.svg = tags((name) => document.createElementNS(SVG, name));
  V.link = (href, ...parts) => fill(V.el.a({ href }), parts);

  // --- requests ----------------------------------------------------------------------------------------------------

  const exported = () => window.exported; // set by data/index.js of an export
  V.isExport = () => Boolean(exported());

  V.query = (values) => {
    const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return given
      .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
      .sort()
      .join("&");
  };

  V.ask = async (view, values = {}) => {
    const key = `${view}?${V.query(values)}`;
    if (exported()) return fromExport(key);
    const token = sessionStorage.getItem(TOKEN);
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(`api/${key}`, { headers, cache: "no-store" });
    const data = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(data.error ? data.error.message : `the server answered ${response.status}`);
    return data;
  };

  // The only scripts that are added: answer files, by number.
  const numbered = (url) => {
    if (!/^data\/\d+\.js$/.test(url)) throw new TypeError(url);
    return url;
  };
  const bundle =
    exported() && window.trustedTypes
      ? window.trustedTypes.createPolicy("bundle", { createScriptURL: numbered })
      : { createScriptURL: numbered };

  let places = null;
  const shards = new Map();
  async function fromExport(key) {
    places ??= unpack(exported().places);
    const shard = (await places)[key];
    if (shard === undefined) throw new Error(`This export does not contain that (${exported().note}).`);
    if (!shards.has(shard)) shards.set(shard, load(shard).then(unpack));
    return (await shards.get(shard))[key];
  }

  // JSON, deflated, in base64.
  async function unpack(text) {
    if (!window.DecompressionStream)
      throw new Error("This browser cannot read an export: a browser from 2023 or later is needed.");
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  }

  function load(shard) {
    return new Promise((done, fail) => {
      const script = V.el.script();
      script.src = bundle.createScriptURL(`data/${Number(shard)}.js`);
      script.onload = () => done(exported().shards[shard]);
      script.onerror = () => fail(new Error(`data/${Number(shard)}.js is missing from this export`));
      document.head.append(script);
    });
  }

  // A token in the address's fragment is stored for this tab and removed from the address.
  V.takeToken = () => {
    const found = /^#token=([\w-]+)$/.exec(location.hash);
    if (!found) return;
    sessionStorage.setItem(TOKEN, found[1]);
    history.replaceState(null, "", location.pathname);
  };

  // --- routes: #/name/part/part?key=value ---------------------------------------------------------------------------

  const routes = new Map();
  V.route = (name, show) => routes.set(name, { show });
  V.live = (name, show) => routes.set(name, { show, live: true }); // drawn again when a file of a run has changed
  // Addresses count iterations and steps from 1, as all text does; data count them from 0.
  const COUNTED = { i: 1, g: 1, t: 2 };
  const shift = (by, name, parts, { step, ...values }) => [
    parts.map((part, i) => (i === COUNTED[name] ? Number(part) + by : part)),
    step === undefined ? values : { ...values, step: Number(step) + by },
  ];
  V.to = (name, given = [], found = {}) => {
    const [parts, values] = shift(1, name, given, found);
    const query = V.query(values);
    return `#/${[name, ...parts].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
  };
  V.place = () => {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [name, ...found] = path.split("/").map(decoded);
    const [parts, values] = shift(-1, name, found, Object.fromEntries(new URLSearchParams(query)));
    return { name: name || "start", parts, values };
  };
  // Changes the address's query without a history entry and without redrawing.
  V.note = (values) => {
    const { name, parts, values: before } = V.place();
    history.replaceState(null, "", V.to(name, parts, { ...before, ...values }));
  };

  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  }

  let drawing = 0;
  // Draws the page of the address; `again`: it is already shown, and its files have changed.
  V.draw = async (again = false) => {
    const mine = ++drawing;
    const place = V.place();
    const main = document.getElementById("main");
    const route = routes.get(place.name);
    if (!again) main.setAttribute("aria-busy", "true");
    try {
      if (!route) throw new Error(`There is no page "${place.name}".`);
      const page = await route.show(place);
      if (mine !== drawing) return;
      swap(main, page, again);
    } catch (error) {
      if (mine !== drawing) return;
      V.crumbs("not found");
      main.replaceChildren(V.el.p({ class: "problem", role: "alert" }, error.message));
    } finally {
      if (mine === drawing) main.removeAttribute("aria-busy");
    }
  };

  function swap(main, page, again) {
    const focus = again && document.activeElement ? document.activeElement.getAttribute("href") : null;
    const open = again ? [...main.querySelectorAll("details[open][data-key]")].map((d) => d.dataset.key) : [];
    main.replaceChildren(page.body);
    for (const details of main.querySelectorAll("details[data-key]")) if (open.includes(details.dataset.key)) details.open = true;
    if (again) {
      const same = focus && [...main.querySelectorAll("a")].find((a) => a.getAttribute("href") === focus);
      if (same) same.focus({ preventScroll: true });
    } else {
      window.scrollTo(0, 0);
      if (!typing()) main.focus({ preventScroll: true });
      if (page.ready) page.ready();
    }
    document.title = page.title;
    main.setAttribute("aria-label", page.title);
    tell(page.news || "", again);
  }

  // Announces news of a followed run to screen readers, once.
  let news = "";
  function tell(text, again) {
    if (again && text && text !== news) document.getElementById("news").textContent = text;
    news = text;
  }

  // --- live ----------------------------------------------------------------------------------------------------------

  let stamps = null;
  let changed = false;
  let restsUntil = 0;
  V.watch = async () => {
    if (exported()) return;
    await look(); // the state before the first page is drawn
    setInterval(look, POLL_MS);
  };
  // Asks for changes and redraws; drawing takes about 1 % of the time, so that a run on the same machine is not slowed.
  async function look() {
    if (document.hidden) return;
    const live = document.getElementById("live");
    try {
      const now = JSON.stringify((await V.ask("state")).stamps);
      changed ||= stamps !== null && now !== stamps;
      stamps = now;
      live.textContent = "";
      const route = routes.get(V.place().name);
      if (!changed || !route || !route.live || typing() || performance.now() < restsUntil) return;
      changed = false;
      const started = performance.now();
      await V.draw(true);
      restsUntil = performance.now() + Math.min(LONGEST_REST_MS, REST * (performance.now() - started));
    } catch {
      live.textContent = "not connected";
    }
  }
  const typing = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement ? document.activeElement.tagName : "");
  V.typing = typing;
})();

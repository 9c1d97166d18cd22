"use strict";
// Keys, theme and the first page.
(() => {
  const V = window.view;
  const { el } = V;
  const KEYS = [
    ["j, k", "next and previous row or step"],
    ["Enter", "open"],
    ["[ and ]", "previous and next page"],
    ["u", "one level up"],
    ["/", "search"],
    ["\u2190 \u2192 \u2191 \u2193", "move along curves and tokens, through a tree"],
    ["?", "show these keys"],
  ];
  const dialog = document.getElementById("keys");
  dialog.append(
    el.h2({ id: "keys-title" }, "Keys"),
    el.dl(
      { class: "facts" },
      KEYS.map(([key, what]) => el.div(el.dt(el.kbd(key)), el.dd(what))),
    ),
    el.form({ method: "dialog" }, el.button("Close")),
  );
  document.getElementById("help").addEventListener("click", () => dialog.showModal());

  const THEME = "rl_agents.theme";
  const paint = (theme) =>
    theme ? document.documentElement.setAttribute("data-theme", theme) : document.documentElement.removeAttribute("data-theme");
  const remembered = () => {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null; // a page opened from disk may have no storage
    }
  };
  paint(remembered());
  document.getElementById("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    paint(dark ? "light" : "dark");
    try {
      localStorage.setItem(THEME, dark ? "light" : "dark");
    } catch {
      // then it applies to this page only
    }
  });

  document.getElementById("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const { name, parts } = V.place();
    const run = /^(run|i|g|e|t|find|searches|tree)$/.test(name) ? parts[0] : null;
    location.hash = V.to("find", run ? [run] : [], { text: document.getElementById("words").value });
  });
  if (V.isExport()) document.getElementById("find").hidden = true;

  const follow = (selector) => {
    const found = document.querySelector(selector);
    if (found) location.hash = found.getAttribute("href");
  };
  const move = (by) => {
    const rows = [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
    if (!rows.length) return;
    const here = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
    const next = rows[here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, here + by))];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  const ACTS = {
    j: () => move(1),
    k: () => move(-1),
    "?": () => dialog.showModal(),
    "/": () => document.getElementById("words").focus(),
    "[": () => follow("main a[rel=prev]"),
    "]": () => follow("main a[rel=next]"),
    u: () => {
      const up = [...document.querySelectorAll("#crumbs a")].at(-1);
      if (up) location.hash = up.getAttribute("href");
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && V.typing()) document.activeElement.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || V.typing() || dialog.open || !ACTS[event.key]) return;
    event.preventDefault();
    ACTS[event.key]();
  });

  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  V.takeToken();
  V.watch().then(() => {
    window.addEventListener("hashchange", () => V.draw());
    return V.draw();
  });
})();

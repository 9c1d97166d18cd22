"use strict";
// Formatting of numbers, advantages and model output, whose invisible characters are made visible.
(() => {
  const V = window.view;
  const { el } = V;

  const MINUS = "\u2212";
  const signless = (value, digits) => Math.abs(value).toFixed(digits);

  // A number with about three significant digits; an em dash if there is none.
  V.num = (value, digits = null) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
    if (Number.isInteger(value) && digits === null) return (value < 0 ? MINUS : "") + Math.abs(value).toLocaleString("en");
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e6) && digits === null)
      return value.toExponential(1).replace("e+", "e").replace("-", MINUS).replace("-", MINUS);
    const places = digits === null ? (size >= 100 ? 1 : size >= 10 ? 2 : 3) : digits;
    return (value < 0 ? MINUS : "") + signless(value, places);
  };
  V.signed = (value, digits = 2) =>
    value === null || value === undefined ? "\u2013" : (value < 0 ? MINUS : value > 0 ? "+" : "\u00b1") + signless(value, digits);
  V.duration = (seconds) => {
    if (seconds === null || seconds === undefined) return "\u2013";
    if (seconds < 90) return `${seconds.toFixed(0)} s`;
    return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
  };
  V.count = (n, one, many = `${one}s`) => `${V.num(n)} ${n === 1 ? one : many}`;

  // Blue above zero, orange below (color-blind-safe); the sign is always written as well.
  V.diverging = (value, limit) => {
    if (!value || !limit) return "transparent";
    const share = Math.min(1, Math.abs(value) / limit);
    return `rgb(${value < 0 ? "213 94 0" : "0 114 178"} / ${(0.08 + 0.6 * share).toFixed(3)})`;
  };
  const CIVIDIS = [
    [0, 32, 77],
    [65, 77, 107],
    [124, 123, 120],
    [185, 172, 112],
    [255, 234, 70],
  ];
  V.sequential = (share) => {
    const at = Math.max(0, Math.min(1, share)) * (CIVIDIS.length - 1);
    const low = Math.min(CIVIDIS.length - 2, Math.floor(at));
    const mixed = CIVIDIS[low].map((c, i) => Math.round(c + (CIVIDIS[low + 1][i] - c) * (at - low)));
    return `rgb(${mixed.join(" ")})`;
  };
  // Black or white, whichever has more contrast (both are equal at luminance 0.18).
  V.onSequential = (share) => {
    const linear = (c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = V.sequential(share)
      .match(/\d+/g)
      .map((c) => linear(Number(c)));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
  };
  V.ramp = () =>
    el.span(
      { class: "ramp", "aria-hidden": "true" },
      [0, 0.25, 0.5, 0.75, 1].map((s) => el.span({ style: { "background-color": V.sequential(s) } })),
    );
  V.largest = (values) => values.reduce((most, v) => Math.max(most, Math.abs(v ?? 0)), 0);

  V.advantage = (value, limit = 2) =>
    el.span({ class: "adv", style: { "background-color": V.diverging(value, limit) } }, V.signed(value));

  // --- text of models and environments -------------------------------------------------------------------------------

  // Control characters, bidirectional marks, invisible characters and halves of surrogate pairs.
  const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

  V.marked = (text) => {
    const parts = [];
    let last = 0;
    for (const found of text.matchAll(HIDDEN)) {
      const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
      parts.push(
        text.slice(last, found.index),
        el.span({ class: "hidden-char", title: "a character that shows nothing by itself" }, `U+${code}`),
      );
      last = found.index + found[0].length;
    }
    parts.push(text.slice(last));
    return parts;
  };

  // A block of text; `more` fetches the omitted part of a long one.
  V.block = (text, options = {}) => {
    const pre = el.pre(
      { class: `text ${options.class || ""}`, dir: "auto", tabindex: options.cut ? "0" : null },
      text ? V.marked(text) : el.span({ class: "quiet" }, "(empty)"),
    );
    if (!options.cut) return pre;
    let shown = [...text].length; // characters, as the server counts them; `length` counts an emoji twice
    const button = el.button({ type: "button", class: "small" }, `${V.num(options.cut - shown)} more characters`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const piece = await options.more(shown);
        pre.append(...V.marked(piece.text));
        shown += [...piece.text].length;
        const rest = piece.length - shown;
        if (rest > 0) button.textContent = `${V.num(rest)} more characters`;
        else button.remove();
      } catch (error) {
        button.textContent = error.message;
      }
      button.disabled = false;
    });
    return el.div(pre, button);
  };
  V.line = (text, most = 140) => {
    const flat = text.replace(/\s+/g, " ").trim();
    return V.marked(flat.length > most ? `${flat.slice(0, most)}\u2026` : flat);
  };

  // --- pieces of pages ------------------------------------------------------------------------------------------------

  V.result = (row) => {
    const [sign, word, name] =
      row.cause === "branched"
        ? ["\u00b7", "continues", "unsolved"]
        : row.failed
          ? ["!", "error", "failed"]
          : row.success
            ? ["\u2713", "solved", "solved"]
            : ["\u00d7", "not solved", "unsolved"];
    return el.span(
      { class: `result ${name}`, title: word },
      el.span({ "aria-hidden": "true" }, sign),
      el.span({ class: "away" }, word),
    );
  };
  V.cell = (value, options) => el.td(options, value);
  V.number = (value, options = {}) => el.td({ class: "n", ...options }, value);
  V.head = (...names) =>
    el.thead(
      el.tr(
        names.map((name) => {
          const words = name.replace(/^[#~]/, "");
          const shown = /^~/.test(name) ? el.span({ class: "away" }, words) : words;
          return el.th({ scope: "col", class: /^#/.test(name) ? "n" : null }, shown);
        }),
      ),
    );
  // A scrollable table of these heads (# marks numbers, ~ screen readers only) and these rows, or their tbody.
  V.table = (names, rows, kind = "") => {
    const body = Array.isArray(rows) ? el.tbody(rows) : rows;
    return el.div({ class: "wide" }, el.table({ class: `rows ${kind}`.trim() }, V.head(...names), body));
  };
  // How a session ended, in every table of sessions.
  V.SESSION = ["~outcome", "#return", "#lowest advantage", "#steps", "ended by"];
  V.session = (s, limit) => [
    V.cell(V.result(s)),
    V.number(V.num(s.return)),
    V.number(s.advantages ? V.advantage(s.advantages[0], limit) : "\u2013"),
    V.number(V.num(s.steps)),
    V.cell(s.cause),
  ];
  // A color of a curve or a layer, and a list of them with their names.
  V.swatch = (color) => el.span({ class: "key", style: { "background-color": color } });
  V.legend = (items) =>
    el.ul(
      { class: "legend" },
      items.map(([color, name]) => el.li(V.swatch(color), name)),
    );
  // Members side by side: their heads, and rows by step.
  V.sideBySide = (kind, heads, ...rows) => {
    const head = el.thead(el.tr(el.th({ scope: "col" }, "step"), heads));
    return el.div({ class: "wide" }, el.table({ class: `side-by-side ${kind}`.trim() }, head, el.tbody(rows)));
  };
  // Links to the pages before and after this one, each an address (null: there is none) and a text.
  V.neighbors = (label, [before, back], [after, on]) => {
    const go = (href, rel, text) => (href === null ? null : V.link(href, { rel, class: "go" }, text));
    return el.nav({ "aria-label": label }, go(before, "prev", back), " ", go(after, "next", on));
  };
  V.facts = (pairs) =>
    el.dl(
      { class: "facts" },
      pairs
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => el.div(el.dt(name), el.dd(value))),
    );
  V.panel = (title, ...body) => el.section({ class: "panel" }, title ? el.h2(title) : null, ...body);
  V.empty = (text, hint = "") => el.p({ class: "empty" }, text, hint ? el.span({ class: "quiet" }, ` ${hint}`) : null);
  // The pages above this one, each an address and a name, and the name of this one.
  V.crumbs = (...parts) => {
    const path = [[V.to("start"), "runs"], ...parts];
    const here = [path.pop()].flat().at(-1);
    const items = [...path.map((above) => el.li(V.link(...above))), el.li(el.span({ "aria-current": "page" }, here))];
    document.getElementById("crumbs").replaceChildren(el.ol(items));
  };
  V.iterationName = (iteration) => (iteration < 0 ? "outside a run" : `i${iteration + 1}`);
  V.stepName = (ordinal) => `step ${ordinal + 1}`;
})();

"use strict";
// Decisions about an episode, which `run.py pool` adds.
(() => {
  const V = window.view;
  const { el } = V;

  const worded = (d) => `${d.verdict}${d.value === null ? "" : ` ${V.num(d.value)}`}${d.ordinal < 0 ? "" : ` step ${d.ordinal}`}`;

  V.decisions = (data) => {
    if (!data.decisions.length) return null;
    const rows = data.decisions.map((d) =>
      el(
        "li",
        { class: d.undone ? "undone" : null },
        el("b", {}, worded(d)),
        d.by ? ` by ${d.by}` : "",
        d.why ? [": ", V.marked(d.why)] : "",
        d.undone ? " (undone)" : null,
      ),
    );
    return V.panel("Decisions", el("ul", {}, rows));
  };
})();

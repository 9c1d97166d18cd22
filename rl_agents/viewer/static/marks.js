"use strict";
// How PRS and T3 treated an episode, as far as the pool records it.
(() => {
  const V = window.view;
  const { el } = V;

  V.marks = (data) => {
    const { prs, truncation } = data.marks;
    return [prs && byPrs(prs), truncation && byRule(truncation)].filter(Boolean);
  };

  function byPrs(m) {
    const limit = V.largest(m.stages.map((s) => s.value));
    const rows = m.stages.map((s) =>
      el.tr(
        el.th({ scope: "row" }, s.name),
        V.number(s.value === null || s.value === undefined ? "not reached" : V.advantage(s.value, limit)),
        V.cell(s.needs || "always"),
      ),
    );
    return V.panel(
      `Progressive reward (${m.form} form): stage by stage`,
      el.table({ class: "rows small" }, V.head("stage", "#reward", "requires"), el.tbody(rows)),
      m.paid === undefined || m.paid === null ? null : V.facts([["environment reward", V.num(m.paid)]]),
    );
  }

  // Why a rule fired; unknown causes of older runs and plugins are shown unchanged.
  const cutBecause = (m) => {
    const b = m.because || {};
    if (b.stalled_turns)
      return `${V.count(b.stalled_turns.length, "turn")} without progress (${b.stalled_turns.map((t) => `step ${t}`).join(", ")}), ${b.window} trigger the cut`;
    if (b.cosine !== undefined) {
      const like = b.like_turn ? `resembles that of step ${b.like_turn}` : "resembles none";
      return `the question ${like}: cosine ${V.num(b.cosine, 3)}, above ${V.num(b.threshold)} triggers the cut`;
    }
    if (b.beta !== undefined) return `a coin, with probability ${V.num(b.beta)} at each turn`;
    return Object.entries(b)
      .map(([name, value]) => `${name} ${value}`)
      .join(", ");
  };

  const KEYS = { after: "what a cut does", stall: "turns count if", min_turns: "never before turn" };
  const byRule = (m) =>
    V.panel(
      "Cut by a rule",
      V.facts([
        ["rule", m.rule],
        ["after", `step ${m.turn}`],
        ["because", cutBecause(m)],
        ["then", m.outcome],
        ...Object.entries(m.keys)
          .filter(([, value]) => value !== 0 && value !== "")
          .map(([name, value]) => [KEYS[name] || name.replace(/_/g, " "), String(value)]),
      ]),
    );

  // Badges of one step: a rule's cut, and the turns that it counted.
  V.stepMarks = (data, step) => {
    const cut = data.marks.truncation;
    if (!cut) return null;
    const counted = ((cut.because || {}).stalled_turns || []).indexOf(step.ordinal + 1);
    return [
      counted < 0 ? null : el.span({ class: "badge" }, `no progress (${counted + 1} of ${cut.because.window})`),
      step.ordinal === cut.turn - 1 ? el.span({ class: "badge warn" }, `cut here by ${cut.rule}`) : null,
    ];
  };
})();

"use strict";
// How VSPO, PivotRL, PRS and T3 treated an episode, as far as the pool and the run's files record it.
(() => {
  const V = window.view;
  const { el } = V;

  V.marks = (data) => {
    const { vspo, pivot, prs, truncation } = data.marks;
    return [vspo && byVspo(data, vspo), pivot && byPivot(pivot), prs && byPrs(prs), truncation && byRule(truncation)].filter(Boolean);
  };

  function byVspo(data, m) {
    const why = (data.steps.find((step) => step.why) || {}).why || {};
    const drawn = m.agrees
      ? "dropped: all its members have the same return; its weight went to other tasks"
      : why.times
        ? `drawn ${why.times} times in all: its advantages count ${V.num(why.factor)} times${m.clip ? ` (bounded by \u03b1 = ${V.num(m.alpha)}; without the bound ${why.times} times)` : ""}`
        : data.steps.some((step) => step.why)
          ? "drawn once: its advantages count as they are"
          : null;
    return V.panel(
      "VSPO: the task among those of its iteration",
      V.facts([
        ["value V = (best return \u2212 mean)\u00b7\u03c3\u00b2", V.num(m.value)],
        ["\u03c3\u00b2 of its returns", V.num(m.variance)],
        ["probability of a draw", m.probability === null ? "none was drawn" : V.num(m.probability)],
        ["draws", m.probability === null ? null : `${V.num(m.agree)}: as many as members agree in, of ${m.tasks} tasks`],
        ["temperature", m.mode === "value" ? V.num(m.temperature) : `none (${m.mode})`],
        ["resampled", drawn],
      ]),
    );
  }

  function byPivot(m) {
    const said = (p) =>
      p ? `mean ${V.num(p.mean)}, \u03c3\u00b2 ${V.num(p.variance)} (${V.count(p.rollouts, "rollout")})` : null;
    return V.panel(
      "PivotRL: the turn",
      V.facts([
        ["scores now", said(m)],
        ["when it was chosen (profile)", said(m.profile)],
        ["teaches", m.uniform ? "nothing: all rollouts score the same, \u03c3\u00b2 = 0" : "something: its rollouts differ"],
      ]),
    );
  }

  function byPrs(m) {
    const limit = V.largest(m.stages.map((s) => s.value));
    const rows = m.stages.map((s) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, s.name),
        V.number(s.value === null || s.value === undefined ? "not reached" : V.advantage(s.value, limit)),
        V.cell(s.needs || "always"),
      ),
    );
    return V.panel(
      `Progressive reward (${m.form} form): stage by stage`,
      el("table", { class: "rows small" }, V.head("stage", "#reward", "requires"), el("tbody", {}, rows)),
      m.paid === undefined || m.paid === null ? null : V.facts([["environment reward", V.num(m.paid)]]),
    );
  }

  // Why a rule fired; unknown causes of older runs and plugins are shown unchanged.
  V.cutBecause = (m) => {
    const b = m.because || {};
    if (b.stalled_turns)
      return `${V.count(b.stalled_turns.length, "turn")} without progress (${b.stalled_turns.map((t) => `step ${t - 1}`).join(", ")}), ${b.window} trigger the cut`;
    if (b.cosine !== undefined) {
      const like = b.like_turn ? `resembles that of step ${b.like_turn - 1}` : "resembles none";
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
        ["after", `step ${m.turn - 1}`],
        ["because", V.cutBecause(m)],
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
      counted < 0 ? null : el("span", { class: "badge" }, `no progress (${counted + 1} of ${cut.because.window})`),
      step.ordinal === cut.turn - 1 ? el("span", { class: "badge warn" }, `cut here by ${cut.rule}`) : null,
    ];
  };
})();

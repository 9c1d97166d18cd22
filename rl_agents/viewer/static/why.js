"use strict";
// Why a step got its advantage: the formula that gives it, or the known facts.
(() => {
  const V = window.view;
  const { el } = V;

  V.why = (data, step, open) => {
    if (step.advantage === null) return null;
    return el.details(
      { class: "why", open, "data-key": `why-${step.ordinal}` },
      el.summary("Why this advantage?"),
      step.sample
        ? bySiblings(data, step)
        : step.why
          ? step.why.by === "group"
            ? byGroup(data, step.why)
            : byValues(step.why, step)
          : unexplained(data, step),
    );
  };

  // A subtracted term, in brackets if negative.
  const signedTerm = (value) => (value < 0 ? `(${V.num(value)})` : V.num(value));

  function byGroup(data, w) {
    const own = data.kind === "sample" ? "reward" : "return";
    const divided = /\//.test(w.formula);
    const sum = `${V.num(data.return)} \u2212 ${signedTerm(w.mean)}`;
    const times = w.factor ? ` \u00b7 ${V.num(w.factor)}` : "";
    const spelled =
      w.kind === "leave one out" || w.kind === "equal"
        ? null
        : el.p(
            { class: "sum" },
            divided ? ["(", sum, ") / ", V.num(w.divisor)] : times ? ["(", sum, ")"] : sum,
            times,
            " = ",
            el.b(V.signed(w.result)),
            times ? el.span({ class: "quiet" }, ` weighed by VSPO, which drew the task ${w.times} times`) : null,
          );
    return el.div(
      el.p(
        `A = ${w.formula}: this one's ${own} R = ${V.num(data.return)} against the ${w.members} members of its group, whose mean is ${V.num(w.mean)}.${data.steps.length > 1 ? " Every step of it gets the same." : ""}`,
      ),
      spelled,
      siblings(data),
    );
  }

  function bySiblings(data, step) {
    return el.p(
      `It is compared with what else was sampled in the same state; its reward there was ${V.num(step.step_reward)}: `,
      V.link(V.to("e", [data.run, step.sample], { step: 0 }), "among its siblings"),
      ".",
    );
  }

  function byValues(w, step) {
    const whitened = Math.abs(w.deviation - 1) > 1e-6 || Math.abs(w.mean) > 1e-6;
    return el.div(
      el.p(
        `The critic's view: TD error \u03b4 = r + \u03b3\u00b7V(next) \u2212 V = ${V.signed(w.delta, 3)}; with those of later steps, \u03b3 = ${w.gamma} and \u03bb = ${w.gae_lambda}, they sum to ${V.signed(w.gae, 3)}.`,
      ),
      el.p(
        { class: "sum" },
        w.result === undefined
          ? [
              "recorded ",
              el.b(V.signed(step.advantage)),
              el.span(
                { class: "quiet" },
                " with what returns said of this transition beyond that sum (transition_prior), whitened over the batch",
              ),
            ]
          : whitened
            ? [
                `(${V.num(w.gae)} \u2212 ${signedTerm(w.mean)}) / ${V.num(w.deviation)} = `,
                el.b(V.signed(w.result)),
                el.span(
                  { class: "quiet" },
                  " whitened over the batch; its mean and deviation are read off the recorded advantages",
                ),
              ]
            : el.b(V.signed(w.result)),
      ),
    );
  }

  function unexplained(data, step) {
    const figures = data.group_figures;
    return el.div(
      el.p(
        `No single formula over the group or the values gives the recorded ${V.signed(step.advantage, 3)}: whitening over the batch, penalties, weights or a KL term in the reward take part. What is known: return ${V.num(data.return)}; the ${figures.members} members have mean ${V.num(figures.mean)}${figures.deviation === null ? "" : ` and deviation ${V.num(figures.deviation)}`}${step.value === null ? "" : `; the critic expected ${V.num(step.value)} here`}.`,
      ),
      siblings(data),
    );
  }

  function siblings(data) {
    const limit = V.largest(data.siblings.flatMap((s) => s.advantages || []));
    const rows = [...data.siblings]
      .sort((a, b) => a.return - b.return)
      .map((s) =>
        el.tr(
          { class: s.id === data.id ? "this" : null },
          el.th({ scope: "row" }, V.link(V.to("e", [data.run, s.id]), `m${s.member}`), s.id === data.id ? " (this one)" : ""),
          V.session(s, limit),
        ),
      );
    const heads = V.SESSION.map((name) => (name === "#return" && data.kind === "sample" ? "#reward" : name));
    return V.table(["member", ...heads], rows, "small");
  }
})();

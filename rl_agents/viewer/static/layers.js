"use strict";
// Layers by which tokens are colored: numbers, color-blind-safe colors and legends.
(() => {
  const V = window.view;
  const { el } = V;
  const PURPLE = (share) => `rgb(123 50 148 / ${(0.06 + 0.6 * Math.max(0, Math.min(1, share))).toFixed(3)})`;
  const GREEN = "rgb(0 158 115 / 0.35)";
  const GREY = "rgb(120 120 120 / 0.25)";
  const steps = (v) => V.num(v, 3);
  const small = (v) => (Math.abs(v) < 1e-3 && v ? V.num(v) : V.signed(v, 3));

  // The largest |value| of a layer, at least `floor`; it has the full color.
  const reach = (values, floor) => Math.max(floor, V.largest(values));

  // --- from zero upwards -----------------------------------------------------------------------------------------

  const rising = (values, most, unit, say = steps) => ({
    color: (i) => PURPLE(values[i] / most),
    legend: () => [0, 0.25, 0.5, 1].map((s) => [PURPLE(s), `${s === 1 ? "\u2265 " : ""}${unit(most * s)}`]),
    tell: (i) => say(values[i]),
  });

  // --- around a middle: blue above, orange below -------------------------------------------------------------------

  const around = (values, limit, written, tell) => ({
    color: (i) => V.diverging(values[i], limit),
    legend: () => [-1, -0.5, 0, 0.5, 1].map((s) => [V.diverging(s * limit, limit), written(s * limit)]),
    tell: (i) => tell(i),
  });

  const factor = (v) => `\u00d7 ${V.num(Math.exp(v), Math.abs(v) < 0.01 ? 4 : 3)}`;
  // Ratios are colored by their logarithms.
  const ratio = (values) => {
    const logs = values.map((v) => Math.log(Math.max(v, 1e-30)));
    return around(logs, reach(logs, 1e-3), factor, (i) =>
      values[i] === 1 ? "1" : V.num(values[i], Math.abs(logs[i]) < 0.01 ? 5 : 3),
    );
  };

  const versions = (data) => {
    const known = [...new Set(data.versions)];
    const tint = (v) => (known.indexOf(v) % 2 ? "rgb(213 94 0 / 0.3)" : "rgb(0 114 178 / 0.3)");
    return {
      color: (i) => tint(data.versions[i]),
      legend: () => known.map((v) => [tint(v), `version ${v}`]),
      tell: (i) => String(data.versions[i]),
    };
  };

  const mask = (data, values) => {
    const kept = (i) => !values || values[i] > 0;
    const out = data.response.ids.some((_, i) => !kept(i));
    return {
      color: (i) => (kept(i) ? GREEN : GREY),
      legend: () => [
        [GREEN, "sampled: in the loss"],
        ["transparent", "read: not in the loss"],
        ...(out ? [[GREY, "sampled, excluded from the loss"]] : []),
      ],
      tell: (i) => (kept(i) ? "in the loss" : "excluded from the loss"),
    };
  };

  // Name -> { title, about, color(i), legend(), tell(i) }; the learner's exist after a replay.
  V.layersOf = (data) => {
    const surprise = data.logprobs.map((v) => -v);
    const found = {
      surprise: {
        title: "surprise",
        about: "minus the engine\u2019s log-probability of the token, at the run\u2019s temperature",
        ...rising(surprise, 5, (s) => `${V.num(s)} nats (p ${Math.exp(-s).toPrecision(1)})`),
      },
    };
    const learned = data.scores ? data.scores.layers : null;
    const constant = data.response.ids.map(() => data.advantage ?? 0);
    const advantages = learned ? learned.advantage : constant;
    if (learned || data.advantage !== null)
      found.advantage = {
        title: "advantage",
        about: learned ? "of each token, as used in the loss" : "the mean of the step, which all of its tokens share here",
        ...around(
          advantages,
          reach(advantages, 2),
          (v) => V.signed(v, 1),
          (i) => V.signed(advantages[i], 3),
        ),
      };
    if (learned) {
      found.ratio = {
        title: "ratio",
        about:
          "probability after this update over that before it: blue became more likely, orange less; beyond the clip range underlined",
        ...ratio(learned.ratio),
        beyond: (i) => {
          const [low, high] = data.clip;
          return typeof low === "number" && (learned.ratio[i] < 1 - low || learned.ratio[i] > 1 + high);
        },
      };
      found.gap = {
        title: "logprob mismatch",
        about:
          "the learner\u2019s log-probability before the update minus the engine\u2019s: rounding, and updates between sampling and training",
        ...around(learned.gap, reach(learned.gap, 1e-4), small, (i) => small(learned.gap[i])),
      };
      found.entropy = {
        title: "entropy",
        about: "of the distribution that the token was sampled from, in nats, as the learner computes it before the update",
        ...rising(learned.entropy, reach(learned.entropy, 1), (s) => `${V.num(s, 2)} nats`),
      };
      found.correction = {
        title: "correction",
        about: "the factor on the token\u2019s loss that corrects the logprob mismatch; 1 without correction",
        ...ratio(learned.correction),
      };
    }
    found.version = { title: "policy version", about: "the weights that sampled it", ...versions(data) };
    found.mask = { title: "mask", about: "whether the token is in the loss", ...mask(data, learned && learned.mask) };
    return found;
  };

  V.layerLegend = (layer) => layer.legend().map(([background, name]) => el.span({ class: "patch" }, V.swatch(background), name));

  // Every number of every sampled token as a table, for screen readers; built when opened.
  V.tokenTable = (data, layers, text) => {
    const box = el.details({ class: "quiet-box", "data-key": "numbers" }, el.summary("All numbers as a table"));
    box.addEventListener("toggle", () => {
      if (!box.open || box.children.length > 1) return;
      const names = Object.values(layers).map((layer) => `#${layer.title}`);
      const rows = data.response.ids.map((id, i) =>
        el.tr(
          el.th({ scope: "row" }, String(i)),
          V.cell(V.marked(JSON.stringify(text(i, id)))),
          V.number(String(id)),
          Object.values(layers).map((layer) => V.number(layer.tell(i))),
        ),
      );
      box.append(V.table(["#", "token", "#id", ...names], rows));
    });
    return box;
  };
})();

"use strict";
// Layers by which tokens are colored: numbers, color-blind-safe colors and legends.
(() => {
  const V = window.view;
  const { el } = V;
  const PURPLE = (share) => `rgb(123 50 148 / ${(0.06 + 0.6 * Math.max(0, Math.min(1, share))).toFixed(3)})`;
  // Nats of surprise that have the full color.
  const SURPRISED = 5;

  const surprise = (data) => ({
    color: (i) => PURPLE(-data.logprobs[i] / SURPRISED),
    legend: () =>
      [0, 0.25, 0.5, 1].map((share) => {
        const nats = SURPRISED * share;
        return [PURPLE(share), `${share === 1 ? "\u2265 " : ""}${nats} nats (p ${Math.exp(-nats).toPrecision(1)})`];
      }),
    tell: (i) => V.num(-data.logprobs[i], 3),
  });

  // Blue above zero, orange below.
  const advantage = (value) => {
    const limit = Math.max(2, Math.abs(value));
    return {
      color: () => V.diverging(value, limit),
      legend: () => [-1, -0.5, 0, 0.5, 1].map((s) => [V.diverging(s * limit, limit), V.signed(s * limit, 1)]),
      tell: () => V.signed(value, 3),
    };
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

  // Name -> { title, about, color(i), legend(), tell(i) }.
  V.layersOf = (data) => {
    const found = {
      surprise: {
        title: "surprise",
        about: "minus the engine\u2019s log-probability of the token, at the run\u2019s temperature",
        ...surprise(data),
      },
    };
    if (data.advantage !== null)
      found.advantage = {
        title: "advantage",
        about: "the mean of the step, which all of its tokens share here",
        ...advantage(data.advantage),
      };
    for (const [name, values] of Object.entries(data.losses)) {
      const limit = V.largest(values) || 1;
      found[`loss ${name}`] = {
        title: `loss: ${name}`,
        about: "what this component added to the update\u2019s loss here: its weight times its loss",
        color: (i) => V.diverging(-values[i], limit),
        legend: () => [-1, -0.5, 0, 0.5, 1].map((s) => [V.diverging(-s * limit, limit), (s * limit).toExponential(1)]),
        tell: (i) => values[i].toExponential(3),
      };
    }
    found.version = { title: "policy version", about: "the weights that sampled it", ...versions(data) };
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

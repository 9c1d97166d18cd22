"use strict";
// The tokens of a step as a heat map: probability, advantage, weights' version, mask.
(() => {
  const V = window.view;
  const { el } = V;
  const LAYERS = { surprise: "surprise", advantage: "advantage", version: "policy version", mask: "mask" };

  V.route("t", async ({ parts: [run, session, number], values }) => {
    const ordinal = Number(number);
    const data = await V.ask("tokens", { run, session, ordinal, whole: values.whole });
    V.crumbs([
      [V.to("run", [run]), run],
      [V.to("i", [run, data.iteration]), V.iterationName(data.iteration)],
      [V.to("e", [run, session], { step: ordinal }), session],
      ["", `tokens of step ${ordinal}`],
    ]);
    const info = el("output", { class: "token-info", "aria-live": "polite" }, "Point at a token, or move with the arrow keys.");
    const map = el("div", { class: "tokens", role: "group", "aria-label": "Tokens" });
    const scale = el("div", { class: "scale" });
    const draw = (layer) => {
      map.replaceChildren(...spans(data, layer));
      scale.replaceChildren(...legend(data, layer));
    };
    const beside = (step, rel, text) =>
      step >= 0 && step < data.steps ? V.link(V.to("t", [run, session, step]), { rel, class: "go" }, text) : null;
    listen(map, data, info);
    const first = LAYERS[values.layer] ? values.layer : "surprise";
    draw(first);
    const body = el(
      "div",
      {},
      el(
        "div",
        { class: "between" },
        el("h1", {}, `Tokens of step ${ordinal}`, el("span", { class: "quiet" }, ` of ${session}`)),
        el(
          "nav",
          { "aria-label": "Steps beside" },
          beside(ordinal - 1, "prev", "\u2190 step"),
          " ",
          beside(ordinal + 1, "next", "step \u2192"),
        ),
      ),
      V.facts([
        ["advantage of the step", data.advantage === null ? null : V.advantage(data.advantage)],
        ["value", data.value === null ? null : V.num(data.value)],
        ["loss weight", V.num(data.weight)],
        ["sampled", `${V.num(data.response.ids.length)} tokens, ended by ${data.finish}`],
        ["temperature", data.temperature],
      ]),
      el("div", { class: "between" }, layers(first, draw), scale),
      info,
      map,
      data.decoded ? null : V.empty("The run has left no tokenizer: tokens are shown as their ids."),
      data.response.left_out ? V.empty(`${V.num(data.response.left_out)} further sampled tokens are not shown.`) : null,
      el(
        "p",
        { class: "quiet" },
        "The pool holds the exact ids, the engine\u2019s log-probability of each sampled token at the run\u2019s temperature, and the mean advantage and value of the step. The learner\u2019s ratio, gap, entropy and correction weight are not kept per token; metrics have their means.",
      ),
    );
    return { title: `tokens \u00b7 ${session} \u00b7 step ${ordinal}`, body };
  });

  function layers(first, draw) {
    return el(
      "fieldset",
      { class: "tabs" },
      el("legend", { class: "away" }, "Layer"),
      Object.entries(LAYERS).map(([layer, name]) =>
        el(
          "label",
          { class: "tab" },
          el("input", {
            type: "radio",
            name: "layer",
            checked: layer === first,
            on: {
              change: () => {
                V.note({ layer });
                draw(layer);
              },
            },
          }),
          name,
        ),
      ),
    );
  }

  function spans(data, layer) {
    const { prompt, response } = data;
    const before = prompt.ids.map((id, i) => span(text(prompt, i, id), "read", i, null));
    const after = response.ids.map((id, i) => span(text(response, i, id), "sampled", i, colour(data, layer, i)));
    const all = prompt.left_out
      ? V.link(
          V.to("t", [data.run, data.session, data.ordinal], { whole: 1, layer }),
          { class: "left-out" },
          `${V.num(prompt.left_out)} earlier tokens`,
        )
      : null;
    return [all, ...before, ...after].filter(Boolean);
  }

  const text = (part, i, id) => (part.texts ? part.texts[i] : `${id} `);

  function span(written, kind, index, background) {
    const shown = written.replace(/\n/g, "\u21b5\n").replace(/\t/g, "\u21e5\t");
    return el(
      "span",
      {
        class: kind,
        "data-index": index,
        "data-kind": kind,
        tabindex: kind === "sampled" && index === 0 ? "0" : "-1",
        style: background ? { "background-color": background } : null,
      },
      V.marked(shown),
    );
  }

  // Surprise is -log p: 0 for a sure token; 5 nats are a probability of 0.7 %.
  const MOST = 5;
  function colour(data, layer, i) {
    if (layer === "surprise") return `rgb(123 50 148 / ${(0.06 + 0.6 * Math.min(1, -data.logprobs[i] / MOST)).toFixed(3)})`;
    if (layer === "advantage") return V.diverging(data.advantage, 2);
    if (layer === "version") {
      const known = [...new Set(data.versions)];
      return known.length < 2
        ? "rgb(0 114 178 / 0.2)"
        : `rgb(${known.indexOf(data.versions[i]) % 2 ? "213 94 0" : "0 114 178"} / 0.3)`;
    }
    return data.weight > 0 ? "rgb(0 158 115 / 0.35)" : "rgb(120 120 120 / 0.25)";
  }

  function legend(data, layer) {
    const patch = (background, name) =>
      el("span", { class: "patch" }, el("span", { class: "key", style: { "background-color": background } }), name);
    if (layer === "surprise")
      return [0, 1, 2.5, 5].map((s) =>
        patch(
          `rgb(123 50 148 / ${0.06 + 0.6 * (s / MOST)})`,
          `${s === 5 ? "\u2265 " : ""}${s} nats (p ${Math.exp(-s).toPrecision(1)})`,
        ),
      );
    if (layer === "advantage") return [-2, 0, 2].map((a) => patch(V.diverging(a, 2), V.signed(a, 0)));
    if (layer === "version")
      return [...new Set(data.versions)].map((v, i) =>
        patch(i % 2 ? "rgb(213 94 0 / 0.3)" : "rgb(0 114 178 / 0.3)", `version ${v}`),
      );
    return [
      patch("rgb(0 158 115 / 0.35)", "sampled: in the loss"),
      patch("transparent", "read: not in the loss"),
      ...(data.weight > 0 ? [] : [patch("rgb(120 120 120 / 0.25)", "excluded")]),
    ];
  }

  function listen(map, data, info) {
    const tell = (target) => {
      const span = target.closest("[data-index]");
      if (!span) return;
      const i = Number(span.dataset.index),
        sampled = span.dataset.kind === "sampled";
      const part = sampled ? data.response : data.prompt;
      info.replaceChildren(
        ...V.marked(JSON.stringify(text(part, i, part.ids[i]))),
        ` \u00b7 id ${part.ids[i]}`,
        sampled
          ? ` \u00b7 token ${i} \u00b7 log-probability ${V.num(data.logprobs[i], 3)} (p ${Math.exp(data.logprobs[i]).toPrecision(3)}) \u00b7 version ${data.versions[i]}`
          : " \u00b7 read, not sampled",
      );
    };
    map.addEventListener("pointerover", (event) => tell(event.target));
    map.addEventListener("focusin", (event) => tell(event.target));
    map.addEventListener("keydown", (event) => {
      const next = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
      const other = next && event.target[next];
      if (!other) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
    });
  }
})();

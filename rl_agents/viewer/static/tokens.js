"use strict";
// The tokens of a step as a heat map of one of the layers of layers.js.
(() => {
  const V = window.view;
  const { el } = V;

  V.route("t", async ({ parts: [run, session, number], values }) => {
    const ordinal = Number(number);
    const data = await V.ask("tokens", { run, session, ordinal, whole: values.whole });
    V.crumbs(
      [V.to("run", [run]), run],
      [V.to("i", [run, data.iteration]), V.iterationName(data.iteration)],
      [V.to("e", [run, session], { step: ordinal }), session],
      `tokens of ${V.stepName(ordinal)}`,
    );
    const layers = V.layersOf(data);
    const info = el.output({ class: "token-info", "aria-live": "polite" }, "Point at a token, or move with the arrow keys.");
    const map = el.div({ class: "tokens", role: "group", "aria-label": "Tokens" });
    const scale = el.div({ class: "scale" });
    const about = el.p({ class: "quiet about" });
    const draw = (name) => {
      map.replaceChildren(...spans(data, name, layers[name]));
      scale.replaceChildren(...V.layerLegend(layers[name]));
      about.replaceChildren(`${layers[name].title}: ${layers[name].about}.`);
    };
    const beside = (step) => (step >= 0 && step < data.steps ? V.to("t", [run, session, step]) : null);
    listen(map, data, layers, info);
    const first = Object.hasOwn(layers, values.layer || "") ? values.layer : "surprise";
    draw(first);
    const body = el.div(
      el.div(
        { class: "between" },
        el.h1(`Tokens of ${V.stepName(ordinal)}`, el.span({ class: "quiet" }, ` of ${session}`)),
        V.neighbors("Neighboring steps", [beside(ordinal - 1), "\u2190 step"], [beside(ordinal + 1), "step \u2192"]),
      ),
      V.facts([
        ["advantage of the step", data.advantage === null ? null : V.advantage(data.advantage)],
        ["value", data.value === null ? null : V.num(data.value)],
        ["sampled", `${V.num(data.response.ids.length)} tokens, ended by ${data.finish}`],
        ["temperature", data.temperature],
      ]),
      el.div({ class: "between" }, choice(layers, first, draw), scale),
      about,
      map,
      info,
      data.decoded ? null : V.empty("No tokenizer was found for this run: tokens are shown as ids."),
      data.response.left_out ? V.empty(`${V.num(data.response.left_out)} further sampled tokens are not shown.`) : null,
      V.tokenTable(data, layers, (i, id) => text(data.response, i, id)),
      el.p(
        { class: "quiet" },
        "The pool holds the exact ids, the engine\u2019s log-probability of each sampled token at the run\u2019s temperature, and the mean advantage and value of the step.",
      ),
    );
    return { title: `tokens \u00b7 ${session} \u00b7 ${V.stepName(ordinal)}`, body };
  });

  function choice(layers, first, draw) {
    return el.fieldset(
      { class: "tabs" },
      el.legend({ class: "away" }, "Layer"),
      Object.entries(layers).map(([name, layer]) =>
        el.label(
          { class: "tab" },
          el.input({
            type: "radio",
            name: "layer",
            checked: name === first,
            on: {
              change: () => {
                V.note({ layer: name });
                draw(name);
              },
            },
          }),
          layer.title,
        ),
      ),
    );
  }

  function spans(data, name, layer) {
    const { prompt, response } = data;
    const before = prompt.ids.map((id, i) => span(text(prompt, i, id), "read", i, null));
    const after = response.ids.map((id, i) => span(text(response, i, id), "sampled", i, layer.color(i)));
    const earlier = [{ class: "left-out" }, `${V.num(prompt.left_out)} earlier tokens`];
    const whole = V.to("t", [data.run, data.session, data.ordinal], { whole: 1, layer: name });
    const all = V.isExport() ? V.el.span(...earlier) : V.link(whole, ...earlier); // an export lacks them
    return [prompt.left_out ? all : null, ...before, ...after].filter(Boolean);
  }

  const text = (part, i, id) => (part.texts ? part.texts[i] : `${id} `);

  function span(written, kind, index, background) {
    const shown = written.replace(/\n/g, "\u21b5\n").replace(/\t/g, "\u21e5\t");
    return el.span(
      {
        class: kind,
        "data-index": index,
        "data-kind": kind,
        tabindex: kind !== "read" && index === 0 ? "0" : "-1",
        style: background ? { "background-color": background } : null,
      },
      V.marked(shown),
    );
  }

  const numbers = (layers, i) =>
    Object.entries(layers)
      .filter(([name]) => name !== "surprise")
      .map(([, layer]) => ` \u00b7 ${layer.title} ${layer.tell(i)}`)
      .join("");

  function listen(map, data, layers, info) {
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
          ? ` \u00b7 token ${i} \u00b7 log-probability ${V.num(data.logprobs[i], 3)} (p ${Math.exp(data.logprobs[i]).toPrecision(3)})${numbers(layers, i)}`
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

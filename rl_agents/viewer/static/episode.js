"use strict";
// One episode: observations, actions, rewards and advantages, and their explanation.
(() => {
  const V = window.view;
  const { el, svg } = V;

  V.route("e", async ({ parts: [run, session], values }) => {
    const data = await V.ask("episode", { run, session });
    V.crumbs(
      [V.to("run", [run]), run],
      [V.to("i", [run, data.iteration], { kind: data.kind }), V.iterationName(data.iteration)],
      [V.to("g", [run, data.iteration, data.group_id], { kind: data.kind }), `g${data.group_id}`],
      `m${data.member}`,
    );
    const limit = V.largest(data.steps.map((s) => s.advantage));
    const marked = values.step === undefined ? null : Number(values.step);
    const cards = data.steps.map((step) => card(run, data, step, limit, step.ordinal === marked));
    const body = el.div(
      head(run, data),
      timeline(data, limit),
      data.tree ? V.lineages(data) : null,
      cards.length ? el.ol({ class: "steps" }, cards) : V.empty("No step was taken.", data.end_cause),
    );
    return {
      title: `${session} \u00b7 ${run}`,
      body,
      ready: () => marked !== null && show(marked),
    };
  });

  function show(ordinal) {
    const card = document.getElementById(`step-${ordinal}`);
    if (card) {
      card.scrollIntoView({ block: "start" });
      card.focus({ preventScroll: true });
    }
  }

  function head(run, data) {
    const place = data.siblings.findIndex((s) => s.id === data.id);
    const beside = (other) => (other ? V.to("e", [run, other.id]) : null);
    const f = data.facts;
    return el.header(
      el.div(
        { class: "between" },
        el.h1(V.result(data), " ", data.id, el.span({ class: "quiet" }, ` \u00b7 ${V.kindName(data.kind, 1)}`)),
        V.neighbors(
          "Neighboring members",
          [beside(data.siblings[place - 1]), "\u2190 member"],
          [beside(data.siblings[place + 1]), "member \u2192"],
        ),
      ),
      V.facts([
        [
          "task",
          V.link(
            V.to("task", [data.task_id], { run, session: data.id }),
            { title: "the same task elsewhere" },
            V.marked(data.task_id),
          ),
        ],
        ["return", V.num(data.return)],
        ["steps", V.num(data.steps.length)],
        ["tokens", V.num(data.tokens)],
        ["ended by", data.end_cause || "unknown"],
        ...(data.kind === "sample"
          ? [
              ["S(s) and n(s) of the state", f.search ? `${V.num(f.search.score)}, ${f.search.rollouts}` : null],
              ["search", V.link(V.to("tree", [run, data.seed], { state: data.steps[0].call }), "its tree")],
            ]
          : []),
        ["state", data.learned_in < 0 ? data.state : `${data.state} by ${V.iterationName(data.learned_in)}`],
        ["seed", data.seed],
        ...Object.entries(data.metrics).map(([k, v]) => [k, V.num(v)]),
      ]),
      V.marks(data),
      rest(f),
    );
  }

  function rest(facts) {
    const known = ["prs", "truncation", "environment_return", "search"];
    const others = Object.entries(facts).filter(([name]) => !known.includes(name));
    return others.length
      ? el.details(
          { class: "quiet-box", "data-key": "facts" },
          el.summary(`Facts: ${others.map(([name]) => name).join(", ")}`),
          others.map(([name, value]) => [el.h3(name), V.block(JSON.stringify(value, null, 1).slice(0, 20000))]),
        )
      : null;
  }

  // A bar per step's advantage, each a link.
  function timeline(data, limit) {
    const steps = data.steps;
    if (steps.length < 2 || !limit) return null;
    const width = Math.max(6, Math.min(36, 900 / steps.length)),
      height = 56,
      middle = height / 2;
    const bars = steps.map((step, i) => {
      const size = ((step.advantage || 0) / limit) * (middle - 4);
      return svg.a(
        {
          href: V.to("e", [data.run, data.id], { step: step.ordinal }),
          "aria-label": `${V.stepName(step.ordinal)}, advantage ${V.signed(step.advantage)}`,
        },
        svg.rect({ x: i * width, y: 0, width, height, class: "hit" }),
        svg.rect({
          x: i * width + 1,
          y: size > 0 ? middle - size : middle,
          width: width - 2,
          height: Math.max(1, Math.abs(size)),
          class: size < 0 ? "bar low" : "bar high",
        }),
        step.reward ? svg.circle({ cx: i * width + width / 2, cy: 4, r: 2.6, class: "reward" }) : null,
      );
    });
    return el.figure(
      { class: "timeline" },
      el.figcaption("advantage of each step; a dot: a reward was paid"),
      svg.svg(
        {
          viewBox: `0 0 ${steps.length * width} ${height}`,
          width: steps.length * width,
          height,
          role: "group",
          "aria-label": "Advantages by step",
        },
        svg.line({ class: "grid", x1: 0, x2: steps.length * width, y1: middle, y2: middle }),
        bars,
      ),
    );
  }

  function card(run, data, step, limit, marked) {
    const more = (field) => (start) => V.ask("text", { run, session: data.id, ordinal: step.ordinal, field, start });
    const block = (field, name) => V.block(step[field], { class: name, cut: step.cut[field], more: more(field) });
    const versions = step.spans && step.spans.length ? step.spans.map(([v, n]) => `${v} (${n} tokens)`).join(", ") : step.version;
    const figures = V.facts([
      ["advantage", step.advantage === null ? null : V.advantage(step.advantage, limit)],
      ["value", step.value === null ? null : V.num(step.value)],
      ["reward", step.reward ? V.num(step.reward) : null],
      ...Object.entries(step.metrics).map(([name, value]) => [name, V.num(value)]),
      ["reward among siblings", step.step_reward === undefined ? null : V.num(step.step_reward)],
      ["policy version", versions],
      ["tokens", step.tokens === undefined ? null : `${V.num(step.prompt_tokens)} + ${V.num(step.tokens)}`],
      ["mean log-probability", step.logprob === undefined || step.logprob === null ? null : V.num(step.logprob)],
      [
        "read by",
        step.next === null ? null : step.next === -2 ? "no step (abandoned)" : step.next < 0 ? "no step" : V.stepName(step.next),
      ],
    ]);
    return el.li(
      { class: `card ${marked ? "marked" : ""}`, id: `step-${step.ordinal}`, tabindex: "-1", "data-row": true },
      el.div(
        { class: "between" },
        el.h2(
          `Step ${step.ordinal + 1}`,
          step.summary ? el.span({ class: "badge" }, "summary") : null,
          step.valid ? null : el.span({ class: "badge warn" }, "could not be parsed"),
          step.finish === "length" ? el.span({ class: "badge warn" }, "cut at the token limit") : null,
          V.stepMarks(data, step),
        ),
        el.span(
          step.sample ? [V.link(V.to("e", [run, step.sample]), "among its siblings"), " \u00b7 "] : null,
          step.tokens === undefined ? null : V.link(V.to("t", [run, data.id, step.ordinal]), "tokens"),
        ),
      ),
      figures,
      V.why(data, step, marked),
      el.h3("environment"),
      block("observation", "environment"),
      step.anchor === null ? null : el.details(el.summary({ class: "quiet" }, "state key"), V.block(step.anchor)),
      el.h3("agent"),
      block("action", "agent"),
    );
  }
})();

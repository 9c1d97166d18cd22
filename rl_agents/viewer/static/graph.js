"use strict";
// A session whose calls form a tree: one lane per conversation, joined where a report is read.
(() => {
  const V = window.view;
  const { el, svg } = V;
  const LANE = 34,
    ROW = 26,
    R = 7;

  // The lane of each step: that of the step that it continues (by its call's parent), else a new one.
  function lanes(steps) {
    const byCall = new Map(steps.map((s) => [s.call, s]));
    const ends = new Map(); // call -> the lane that it ends
    let count = 0;
    return steps.map((step) => {
      const parent = byCall.get(step.parent);
      const lane = parent && ends.has(parent.call) ? ends.get(parent.call) : count++;
      if (parent) ends.delete(parent.call);
      ends.set(step.call, lane);
      return lane;
    });
  }

  V.lineages = (data) => {
    const steps = data.steps,
      lane = lanes(steps),
      byCall = new Map(steps.map((s, i) => [s.call, i]));
    const at = (i) => [20 + lane[i] * LANE, 18 + i * ROW];
    const edges = steps.flatMap((step, i) => {
      const found = [],
        from = byCall.get(step.parent);
      if (from !== undefined && from !== i) found.push([from, i, lane[from] === lane[i] ? "goes-on" : "branches"]);
      const next = step.next === null ? (i + 1 < steps.length ? i + 1 : -1) : step.next;
      if (next >= 0 && next < steps.length && byCall.get(steps[next].parent) !== i) found.push([i, next, "joins"]);
      return found;
    });
    const width = 40 + (Math.max(...lane) + 1) * LANE,
      height = 30 + steps.length * ROW;
    const line = ([a, b, kind]) => {
      const [x1, y1] = at(a),
        [x2, y2] = at(b);
      return svg.path({ class: `edge ${kind}`, d: `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}` });
    };
    const node = (step, i) => {
      const [x, y] = at(i);
      const words = `${step.ordinal + 1}  ${step.action.replace(/\s+/g, " ").slice(0, 70)}`;
      return svg.a(
        {
          href: V.to("e", [data.run, data.id], { step: step.ordinal }),
          "aria-label": `${words}: ${V.stepName(step.ordinal)}${step.next === -2 ? ", abandoned" : ""}`,
        },
        svg.circle({ cx: x, cy: y, r: R, class: step.next === -2 ? "call abandoned" : "call" }),
        svg.text({ x: 30 + (Math.max(...lane) + 0.4) * LANE, y: y + 4 }, words),
      );
    };
    return V.panel(
      "Calls",
      el.p(
        { class: "quiet" },
        "One lane for each conversation. Solid: continues; dashed: starts from a rewritten history; dotted: its answer is read there.",
      ),
      el.div(
        { class: "wide" },
        svg.svg(
          {
            class: "graph",
            width: width + 560,
            height,
            viewBox: `0 0 ${width + 560} ${height}`,
            role: "group",
            "aria-label": "Calls of this session",
          },
          edges.map(line),
          steps.map(node),
        ),
      ),
    );
  };
})();

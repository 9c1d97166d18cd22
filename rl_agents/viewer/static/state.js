"use strict";
// One state of a search: its observation, the actions sampled in it, and its siblings.
(() => {
  const V = window.view;
  const { el } = V;
  const HEADS = ["#reward", "#advantage", "~outcome", "action", "#version"];

  // The action links to its step's page, which explains its advantage.
  function row(run, c, here) {
    const action = V.line(c.action || "(not part of a path yet)", 120);
    return el.tr(
      { class: here ? "this" : null },
      V.number(V.num(c.reward)),
      V.number(c.advantage === null ? "\u2013" : V.advantage(c.advantage)),
      V.cell(c.outcome === "open" ? "" : V.result({ success: c.outcome === "success" })),
      V.cell(c.session ? V.link(V.to("e", [run, c.session], { step: 0 }), { title: c.session }, action) : action),
      V.number(c.version ?? ""),
    );
  }

  V.stateDetails = (run, nodes, n) => {
    const siblings = n.parent === null ? [] : nodes.get(n.parent).children;
    const table = (list, title) =>
      list.length
        ? [
            el.h3(title),
            V.table(
              HEADS,
              list.map((c) => row(run, c, c.id === n.id)),
              "small states",
            ),
          ]
        : [];
    return [
      el.h2(n.parent === null ? "The start state" : `A state at depth ${n.depth}`),
      V.facts([
        ["S(s)", n.score === null ? null : V.num(n.score)],
        ["n(s)", V.num(n.n)],
        ["expanded at tick", n.tick],
        ["sampled with policy version", n.version],
      ]),
      n.observation ? V.block(n.observation) : null,
      ...table(n.children, "Sampled here"),
      ...table(siblings, "Its siblings, with itself"),
    ].filter(Boolean);
  };
})();

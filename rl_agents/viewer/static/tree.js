"use strict";
// A search's tree: samples, S(s), n(s) and outcomes per state; a slider selects the tick.
(() => {
  const V = window.view;
  const { el, svg } = V;
  const LEAF = 15,
    STATE = 30,
    GAP = 9,
    DY = 56,
    R = 10,
    PAD = 28;

  V.live("searches", async ({ parts: [run] }) => {
    const data = await V.ask("searches", { run });
    V.crumbs([V.to("run", [run]), run], "searches");
    const span = (row) =>
      row.first === row.last ? V.iterationName(row.first) : `${V.iterationName(row.first)} to ${V.iterationName(row.last)}`;
    const rows = data.rows.map((row) =>
      el.tr(
        el.th({ scope: "row" }, V.link(V.to("tree", [run, row.seed]), { "data-row": true }, V.line(row.task, 60))),
        V.cell(span(row)),
        V.number(V.num(row.samples)),
        V.number(V.num(row.finished)),
        V.number(V.num(row.solved)),
      ),
    );
    return {
      title: `searches \u00b7 ${run}`,
      body: el.div(
        el.h1("Searches"),
        rows.length
          ? V.table(["task", "iterations", "#siblings", "#paths that ended", "#solved"], rows)
          : V.empty("This run has no search.", "3spo has."),
      ),
    };
  });

  V.route("tree", async ({ parts: [run, seed], values }) => {
    const data = await V.ask("tree", { run, seed });
    V.crumbs([V.to("run", [run]), run], [V.to("searches", [run]), "searches"], data.task);
    const nodes = place(data.nodes);
    const ticks = Math.max(0, ...data.nodes.map((n) => n.tick || 0));
    const picture = el.div({ class: "wide tree-box", tabindex: "-1", role: "region", "aria-label": "The tree" });
    picture.addEventListener("keydown", (event) => {
      const next = neighbor(event.key, nodes.get(chosen), nodes);
      if (!next || !visible(next, nodes, shown)) return;
      event.preventDefault();
      choose(next);
    });
    const said = el.output();
    let shown = Math.min(ticks, values.tick === undefined ? ticks : Number(values.tick) || 0),
      chosen = nodes.has(values.state) ? values.state : "0";
    const detail = el.section({ class: "panel", "aria-label": "The chosen state" }, details(run, nodes, nodes.get(chosen)));
    const choose = (node) => {
      chosen = node.id;
      V.note({ state: node.id });
      detail.replaceChildren(...details(run, nodes, node));
      draw();
      picture.querySelector(".node.chosen").focus();
      const below = detail.getBoundingClientRect().top - 0.6 * window.innerHeight; // its position below the tree
      if (below > 0) window.scrollBy(0, below);
    };
    const draw = () => {
      picture.replaceChildren(paint(nodes, shown, chosen, choose));
      const known = [...nodes.values()].filter((n) => visible(n, nodes, shown));
      said.textContent = `tick ${shown} of ${ticks}: ${V.count(known.length, "state")}, ${known.filter((n) => n.tick && n.tick <= shown).length} expanded`;
    };
    const slider = el.input({ type: "range", min: 0, max: ticks, value: shown, "aria-label": "Tick" });
    slider.addEventListener("input", () => {
      shown = Number(slider.value);
      V.note({ tick: shown === ticks ? "" : shown });
      draw();
    });
    const fit = el.input({
      type: "checkbox",
      on: {
        change: () => {
          picture.classList.toggle("fit", fit.checked);
          middle(picture, nodes);
        },
      },
    });
    draw();
    const body = el.div(
      el.h1("Search tree", el.span({ class: "quiet" }, ` \u00b7 ${run}`)),
      V.facts([
        ["task", V.link(V.to("task", [data.task], { run }), V.marked(data.task))],
        ["paths that ended", V.num(data.finished)],
        ["solved", V.num(data.solved)],
        ["states", V.num(data.nodes.length)],
      ]),
      el.div(
        { class: "between" },
        el.label({ class: "slider" }, "ticks ", slider, said),
        el.label(fit, " fit to width"),
        legend(data),
      ),
      el.div({ class: "tree-and-state" }, picture, detail),
    );
    const ready = () => {
      const [width, height] = ["width", "height"].map((side) => Number(picture.firstChild.getAttribute(side)));
      const over = Math.max(width / picture.clientWidth, height / picture.clientHeight);
      fit.checked = over > 1 && over < 1.7;
      picture.classList.toggle("fit", fit.checked);
      middle(picture, nodes);
    };
    return { title: `tree of ${data.task}`, body, ready };
  });

  // Scrolls to the start state.
  function middle(picture, nodes) {
    picture.scrollLeft = PAD + nodes.get("0").x - picture.clientWidth / 2;
  }

  // Subtrees as close to each other as their outlines allow, depth by depth; a parent in the middle of its children
  // (Reingold and Tilford, 1981), so that a long path on one side takes no more room than its widest depth.
  function place(list) {
    const nodes = new Map(list.map((n) => [n.id, { ...n, children: [] }]));
    for (const n of nodes.values()) if (n.parent !== null && nodes.has(n.parent)) nodes.get(n.parent).children.push(n);
    const order = [],
      stack = [nodes.get("0")];
    while (stack.length) {
      order.push(stack.pop());
      stack.push(...order.at(-1).children);
    }
    for (const n of [...order].reverse()) outline(n);
    order[0].x = 0;
    for (const n of order.slice(1)) n.x = nodes.get(n.parent).x + n.shift;
    const left = Math.min(...order.map((n) => n.x));
    for (const n of order) n.x -= left;
    return nodes;
  }

  // Sets the positions of a state's children, `shift`, and the extent of its subtree at each depth, `left` and `right`;
  // both relative to the state.
  function outline(n) {
    const left = [],
      right = [];
    for (const child of n.children) {
      const apart = child.left.map((reach, depth) =>
        depth < right.length ? right[depth] - reach + (depth ? GAP : 0) : -Infinity,
      );
      child.shift = right.length ? Math.max(...apart) : 0;
      child.left.forEach((reach, depth) => (left[depth] ??= child.shift + reach));
      child.right.forEach((reach, depth) => (right[depth] = child.shift + reach));
    }
    const middle = n.children.length ? (n.children[0].shift + n.children.at(-1).shift) / 2 : 0;
    for (const child of n.children) child.shift -= middle;
    const half = (n.n ? STATE : LEAF) / 2;
    n.left = [-half, ...left.map((reach) => reach - middle)];
    n.right = [half, ...right.map((reach) => reach - middle)];
  }

  // Arrow keys: up to the parent, down to the first child, left and right among siblings.
  function neighbor(key, n, nodes) {
    const parent = nodes.get(n.parent);
    if (key === "ArrowUp") return parent;
    if (key === "ArrowDown") return n.children[0];
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
    return by && parent ? parent.children[parent.children.indexOf(n) + by] : undefined;
  }

  const visible = (n, nodes, tick) =>
    n.parent === null || (nodes.has(n.parent) && (nodes.get(n.parent).tick || Infinity) <= tick);

  function paint(nodes, tick, chosen, choose) {
    const all = [...nodes.values()].filter((n) => n.x !== undefined);
    const width = Math.max(...all.map((n) => n.x)) + 2 * PAD,
      height = Math.max(...all.map((n) => n.depth)) * DY + PAD;
    const at = (n) => [PAD + n.x, (n.depth - 1) * DY + PAD];
    const seen = all.filter((n) => visible(n, nodes, tick));
    const lines = seen
      .filter((n) => n.parent !== null)
      .map((n) => {
        const [x1, y1] = at(nodes.get(n.parent)),
          [x2, y2] = at(n);
        return svg.path({ class: "edge", d: `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}` });
      });
    const depths = Array.from({ length: Math.max(...all.map((n) => n.depth)) }, (_, i) =>
      svg.text({ class: "tick", x: 4, y: i * DY + PAD + 4 }, i + 1),
    );
    const here = seen.some((n) => n.id === chosen) ? chosen : "0"; // a tick before the chosen state does not show it
    const marks = seen.map((n) => mark(n, at(n), tick, n.id === here, choose));
    return svg.svg(
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        class: "tree",
        role: "group",
        "aria-label": "States by depth, the start on top",
      },
      lines,
      depths,
      marks,
    );
  }

  function mark(n, [x, y], tick, chosen, choose) {
    const open = n.tick && n.tick <= tick;
    const node = svg.g({
      class: `node ${open ? "expanded" : n.outcome} ${chosen ? "chosen" : ""}`,
      tabindex: chosen ? 0 : -1,
      role: "button",
      "aria-pressed": String(chosen),
      transform: `translate(${x} ${y})`,
      "aria-label": label(n, open),
    });
    if (open) {
      const size = Math.min(16, R + 1.1 * Math.sqrt(n.n));
      const known = n.score !== null;
      node.append(
        svg.circle({ r: size, fill: known ? V.sequential(n.score) : "var(--panel)" }),
        svg.text({ y: 3.8, "text-anchor": "middle", fill: known ? V.onSequential(n.score) : "currentColor" }, n.n),
      );
    } else node.append(shape(n.outcome));
    node.append(svg.title(label(n, open)));
    const act = () => choose(n);
    node.addEventListener("click", act);
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    });
    return node;
  }
  const shape = (outcome) =>
    outcome === "success"
      ? svg.path({ d: "M0-8 2.3-2.6 8-2.3 3.6 1.4 5 7.1 0 3.9-5 7.1-3.6 1.4-8-2.3-2.3-2.6Z" })
      : outcome === "failure"
        ? svg.path({ d: "M-5-5 5 5M5-5-5 5" })
        : svg.circle({ r: 4 });
  const label = (n, open) =>
    [
      n.parent === null ? "start" : `depth ${n.depth}`,
      open ? `n ${n.n}` : n.outcome === "open" ? "frontier: not expanded" : n.outcome,
      n.score === null || !open ? null : `S ${V.num(n.score, 2)}`,
      n.advantage === null ? null : `advantage ${V.signed(n.advantage)}`,
      n.action.replace(/\s+/g, " ").slice(0, 80),
    ]
      .filter(Boolean)
      .join(", ");

  function legend(data) {
    const item = (picture, text) => el.span({ class: "patch" }, picture, text);
    const small = (outcome) =>
      svg.svg(
        { viewBox: "-11 -11 22 22", class: "tree key-shape", "aria-hidden": "true" },
        svg.g({ class: `node ${outcome}` }, shape(outcome)),
      );
    return el.div(
      { class: "scale" },
      data.scores
        ? el.span({ class: "patch" }, "S(s): 0 mastered ", V.ramp(), "1 worth exploring")
        : item(null, "S(s) was not recorded"),
      item(null, "number: n(s), siblings to sample"),
      item(small("success"), "solved"),
      item(small("failure"), "ended unsolved"),
      item(small("open"), "frontier"),
    );
  }

  const STATE_HEADS = ["#reward", "#advantage", "~outcome", "action", "#version"];

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

  // One state: its observation, the actions sampled in it, and its siblings.
  function details(run, nodes, n) {
    const siblings = n.parent === null ? [] : nodes.get(n.parent).children;
    const table = (list, title) =>
      list.length
        ? [
            el.h3(title),
            V.table(
              STATE_HEADS,
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
  }
})();

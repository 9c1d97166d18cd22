"use strict";
// How episodes ended in each iteration: shares stacked to 1, with named causes separated by gaps.
(() => {
  const V = window.view;
  const { el, svg } = V;
  const WIDTH = 340,
    HEIGHT = 150,
    LEFT = 34,
    RIGHT = 6,
    TOP = 6,
    BOTTOM = 20,
    WIDEST = 34;
  const AXES = "share of episodes, against completed iterations";
  // Common causes have the same color in all runs.
  const KNOWN = { terminated: 2, max_turns: 1, truncated_by_rule: 3, context_length: 4, branched: 5, other: 7 };
  const FREE = [0, 6, 5, 4, 3];

  const tints = (causes) => {
    const taken = new Set(causes.map((cause) => KNOWN[cause]).filter((n) => n !== undefined));
    const free = FREE.filter((n) => !taken.has(n));
    return causes.map((cause) => V.colors[KNOWN[cause] ?? free.shift() ?? 7]);
  };

  // `ends`: { causes, points: [[iteration, share of each cause...]...] }; `open(iteration)` opens an iteration.
  V.ends = (name, ends, open = null) => {
    if (!ends || !ends.points.length) return null;
    const { causes, points } = ends;
    const colors = tints(causes);
    const size = Math.min(WIDEST, (WIDTH - LEFT - RIGHT) / points.length);
    const y = (share) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
    const bar = ([, ...shares], place) => {
      let below = 0;
      const gap = size > 4 ? 1 : 0;
      return shares.map((share, i) => {
        const low = below;
        below += share;
        return share > 0
          ? svg.rect({
              x: (LEFT + place * size + gap / 2).toFixed(2),
              width: (size - gap).toFixed(2),
              y: y(below).toFixed(2),
              height: Math.max(0.4, y(low) - y(below) - (y(low) - y(below) > 3 ? 0.8 : 0)).toFixed(2),
              fill: colors[i],
            })
          : null;
      });
    };
    const told = (point) =>
      causes
        .map((cause, i) => [cause || "unknown", point[i + 1]])
        .filter(([, share]) => share > 0)
        .map(([cause, share]) => `${cause} ${V.num(share, 2)}`)
        .join(", ");
    const picture = svg.svg(
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        class: "chart",
        role: "img",
        "aria-label": `How episodes of ${name} ended. After ${points.at(-1)[0]}: ${told(points.at(-1))}`,
      },
      [0, 0.5, 1].map((share) => [
        svg.line({ class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share) }),
        svg.text({ class: "tick", x: LEFT - 6, y: y(share) + 3.5, "text-anchor": "end" }, share),
      ]),
      points.map(bar),
      labels(points, size),
    );
    const said = el.figcaption(el.span({ class: "tag" }, name), el.output());
    const at = (event) => {
      const box = picture.getBoundingClientRect();
      const place = Math.floor((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / size);
      return points[Math.max(0, Math.min(points.length - 1, place))];
    };
    picture.addEventListener("pointermove", (event) => said.lastChild.replaceChildren(`${at(event)[0]}: ${told(at(event))}`));
    picture.addEventListener("pointerleave", () => said.lastChild.replaceChildren());
    if (open) picture.addEventListener("click", (event) => open(at(event)[0]));
    return el.figure(
      { class: "plot ends-plot" },
      said,
      picture,
      V.legend(causes.map((cause, i) => [colors[i], cause || "unknown"])),
      el.p({ class: "quiet axis" }, AXES),
    );
  };

  // As many iterations as fit, from the first on.
  function labels(points, size) {
    const every = Math.max(1, Math.ceil(28 / size));
    return points.map(([iteration], place) =>
      place % every
        ? null
        : svg.text({ class: "tick", x: LEFT + (place + 0.5) * size, y: HEIGHT - 6, "text-anchor": "middle" }, iteration),
    );
  }
})();

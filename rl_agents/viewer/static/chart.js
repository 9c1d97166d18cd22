"use strict";
// Small line charts: one curve per run, or a band for runs that differ only in their seed.
(() => {
  const V = window.view;
  const { el, svg } = V;
  const WIDTH = 340,
    HEIGHT = 168,
    LEFT = 46,
    RIGHT = 10,
    TOP = 10,
    BOTTOM = 22;
  // Okabe and Ito's colors; dashes distinguish curves of the same color.
  V.colors = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#7b5ea7", "#5b6770"];
  const DASHES = ["", "6 3", "2 2", "8 3 2 3"];
  V.stroke = (index) => ({
    stroke: V.colors[index % V.colors.length],
    "stroke-dasharray": DASHES[Math.floor(index / V.colors.length) % DASHES.length] || null,
  });

  // [[at, low, mean, high]...] over several curves, at every position of any of them.
  V.band = (curves) => {
    const at = new Map();
    for (const curve of curves) for (const [x, y] of curve) at.set(x, [...(at.get(x) || []), y]);
    return [...at.entries()]
      .sort((a, b) => a[0] - b[0])
      .map(([x, ys]) => [x, Math.min(...ys), ys.reduce((s, y) => s + y, 0) / ys.length, Math.max(...ys)]);
  };

  // Curves are drawn by completed iterations, or by what these took: one choice for all pages.
  let axis = "iterations";
  V.axes = (known) => {
    const names = [...new Set(["iterations", ...known.flatMap(Object.keys)])];
    const choose = ({ target }) => {
      axis = target.value;
      target.blur(); // a page in whose fields someone types does not follow its run
      V.draw(true);
    };
    const options = names.map((name) => el.option({ value: name, selected: name === axis }, name));
    return el.span("by ", el.select({ "aria-label": "Axis", on: { change: choose } }, options));
  };
  // The points on the axis, at the mean place of the line's runs, each with its iteration at the end.
  function placed({ points, axes }) {
    if (axis === "iterations") return points.map((point) => [...point, point[0]]);
    const places = axes.map((known) => new Map(known[axis] || []));
    const mean = (found) => found.reduce((sum, x) => sum + x, 0) / found.length;
    return points
      .map(([at, ...ys]) => [mean(places.map((place) => place.get(at)).filter(Number.isFinite)), ...ys, at])
      .filter(([x]) => Number.isFinite(x));
  }

  function ticks(low, high, most) {
    const raw = (high - low) / most || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step)
      found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
    return found;
  }

  function range(lines, share) {
    const values = lines.flatMap((line) => line.points.flatMap(([, low, , high]) => [low, high]));
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (share) return [Math.min(0, low), Math.max(1, high)];
    if (low > 0 && low < high * 0.5) low = 0;
    if (low === high) [low, high] = [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
    return [low, high];
  }

  // lines: [{ name, index, points: [[iteration, low, mean, high]...], axes: of its runs }]; `open({ iteration, line })`
  V.chart = (title, lines, options = {}) => {
    const drawn = lines.map((line) => ({ ...line, points: placed(line) })).filter((line) => line.points.length);
    const share = / rate$|_rate$|share$|^eval\/success|^collapse_monitor\/s|end_cause\//.test(title);
    if (!drawn.length) return null;
    const xs = drawn.flatMap((line) => line.points.map(([x]) => x));
    let [first, last] = [Math.min(...xs), Math.max(...xs)];
    if (first === last) [first, last] = [first - 1, last + 1];
    const [low, high] = range(drawn, share);
    const x = (v) => LEFT + ((v - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
    const y = (v) => HEIGHT - BOTTOM - ((v - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const newest = drawn.map((line) => `${line.name}: ${V.num(line.points.at(-1)[2])} after ${V.num(line.points.at(-1)[4])}`).join("; ");
    const picture = svg.svg(
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", tabindex: 0, "aria-label": `${title}. ${newest}` },
      grid(x, y, [first, last], [low, high]),
      drawn.map((line) => curve(line, x, y)),
    );
    const cursor = svg.g({ class: "cursor", visibility: "hidden" }, svg.line({ y1: TOP, y2: HEIGHT - BOTTOM }));
    picture.append(cursor);
    const said = el.figcaption(el.span({ class: "tag" }, title), el.output());
    const tell = (at) => point(at, drawn, { x, cursor, said });
    const quiet = () => {
      cursor.setAttribute("visibility", "hidden");
      said.lastChild.replaceChildren();
    };
    picture.addEventListener("pointermove", (event) => tell(nearest(event, picture, drawn, { first, last }).at));
    picture.addEventListener("pointerleave", quiet);
    picture.addEventListener("blur", quiet);
    listen(picture, drawn, tell, options.open);
    if (options.open) picture.addEventListener("click", (event) => options.open(nearest(event, picture, drawn, { first, last })));
    return el.figure(
      { class: "plot" },
      said,
      picture,
      options.legend ? V.legend(drawn.map((line) => [color(line), line.name])) : null,
    );
  };

  const color = (line) => V.stroke(line.index).stroke;

  function grid(x, y, [first, last], [low, high]) {
    const rows = ticks(low, high, 4).map((v) => [
      svg.line({ class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) }),
      svg.text({ class: "tick", x: LEFT - 6, y: y(v) + 3.5, "text-anchor": "end" }, short(v)),
    ]);
    const columns = ticks(first, last, 5)
      .filter(Number.isInteger)
      .map((v) => svg.text({ class: "tick", x: x(v), y: HEIGHT - 6, "text-anchor": "middle" }, short(v)));
    return [...rows, ...columns];
  }
  const short = (v) =>
    (Math.abs(v) >= 1e4 || (v && Math.abs(v) < 1e-3) ? v.toExponential(0).replace("e+", "e") : String(+v.toPrecision(4))).replace(
      "-",
      "\u2212",
    );

  function curve(line, x, y) {
    const style = V.stroke(line.index);
    const path = (points) =>
      points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const mean = line.points.map(([at, , value]) => [at, value]);
    const parts = [];
    if (line.points.some(([, a, , b]) => b > a)) {
      const outline =
        path(line.points.map(([at, , , b]) => [at, b])) + path(line.points.map(([at, a]) => [at, a]).reverse()).replace("M", "L");
      parts.push(svg.path({ d: `${outline}Z`, fill: style.stroke, "fill-opacity": 0.16 }));
    }
    parts.push(svg.path({ d: path(mean), fill: "none", ...style, "stroke-width": 1.7, "stroke-linejoin": "round" }));
    if (mean.length <= 30) parts.push(...mean.map(([at, v]) => svg.circle({ cx: x(at), cy: y(v), r: 2, fill: style.stroke })));
    return parts;
  }

  function nearest(event, picture, lines, { first, last }) {
    const box = picture.getBoundingClientRect();
    const at = first + ((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT)) * (last - first);
    let best = null;
    for (const line of lines)
      for (const p of line.points) if (!best || Math.abs(p[0] - at) < Math.abs(best.at - at)) best = { at: p[0], iteration: p[4], line };
    return best;
  }

  // Arrow keys move between values, Enter opens the iteration.
  function listen(picture, lines, tell, open) {
    const places = [...new Set(lines.flatMap((line) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
    let place = places.length;
    picture.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) {
        event.preventDefault();
        place = Math.max(0, Math.min(places.length - 1, place + by));
        tell(places[place]);
      } else if (event.key === "Enter" && open && place < places.length) {
        const here = (line) => line.points.find(([x]) => x === places[place]);
        const line = lines.find(here);
        open({ iteration: here(line)[4], line });
      }
    });
  }

  function point(at, lines, scale) {
    scale.cursor.setAttribute("visibility", "visible");
    scale.cursor.firstChild.setAttribute("x1", scale.x(at));
    scale.cursor.firstChild.setAttribute("x2", scale.x(at));
    const values = lines.map((line) => [line, line.points.find(([p]) => p === at)]).filter(([, p]) => p);
    scale.said.lastChild.replaceChildren(
      el.div({ class: "quiet" }, axis === "iterations" ? `after ${V.count(at, "iteration")}` : `after ${V.num(Math.round(at))} ${axis}`),
      ...values.map(([line, p]) => el.div(V.swatch(color(line)), `${line.name} `, el.b(V.num(p[2])))),
    );
  }

  // A mean with its interval; all lines of a table share a scale.
  V.interval = ({ mean, low, high }, [first, last]) => {
    const x = (v) => 4 + ((v - first) / (last - first || 1)) * 92;
    const known = Number.isFinite(low) && Number.isFinite(high);
    return svg.svg(
      { viewBox: "0 0 100 14", class: "strip", "aria-hidden": "true" }, // the numbers are next to it
      svg.line({ class: "grid", x1: 4, x2: 96, y1: 7, y2: 7 }),
      known ? svg.path({ d: `M${x(low)} 7H${x(high)}M${x(low)} 4v6M${x(high)} 4v6`, class: "span" }) : null,
      svg.circle({ cx: x(mean), cy: 7, r: 3.4, class: "dot" }),
    );
  };

  // A strip for one line of a table: the positions of values between low and high.
  V.strip = (values, low, high, mark = null) => {
    const x = (v) => 4 + ((v - low) / (high - low || 1)) * 92;
    const label = `returns ${values.map((v) => V.num(v)).join(", ")}`;
    return svg.svg(
      { viewBox: "0 0 100 14", class: "strip", role: "img", "aria-label": label },
      svg.line({ class: "grid", x1: 4, x2: 96, y1: 7, y2: 7 }),
      values.map((v) => svg.circle({ cx: x(v), cy: 7, r: 3.4, class: "dot" })),
      mark === null ? null : svg.path({ d: `M${x(mark)} 1v12`, class: "mean" }),
    );
  };
})();

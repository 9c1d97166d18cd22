"use strict";
// A sweep: its points as a table with intervals side by side, and as heat maps where two or three keys vary.
(() => {
  const V = window.view;
  const { el } = V;

  V.live("sweep", async ({ parts: [sweep] }) => {
    const data = await V.ask("sweep", { sweep });
    V.crumbs(sweep);
    const r = data.results,
      points = r.points || [];
    const keys = points.length
      ? Object.keys(points[0].keys).filter((k) => new Set(points.map((p) => JSON.stringify(p.keys[k]))).size > 1)
      : [];
    const body = el.div(
      el.h1("Sweep ", sweep),
      V.facts([
        ["metric", r.metric],
        ["seeds", r.seeds],
        ["state", r.status],
      ]),
      points.length
        ? [heats(points, keys, r), table(points, keys, r, data.runs)]
        : V.empty("No result yet.", "results.json is written when trials end."),
    );
    return { title: `sweep ${sweep}`, body };
  });

  const mean = (point) => (point.interval ? point.interval.mean : null);

  const valuesOf = (points, key) => [...new Set(points.map((p) => p.keys[key]))].sort((a, b) => (a > b ? 1 : -1));

  // From the lowest end of an interval to the highest, so that differences within the noise look small.
  function span(points) {
    const bounds = points.flatMap((p) => (p.interval ? [p.interval.mean, p.interval.low, p.interval.high] : []));
    const known = bounds.filter(Number.isFinite);
    return [Math.min(...known), Math.max(...known)];
  }

  // Two keys: one map. Three: one for each value of the key that has the fewest, all with the same colors.
  function heats(points, keys, r) {
    const scale = span(points);
    const colors = Number.isFinite(scale[0])
      ? el.p(
          { class: "quiet" },
          V.num(scale[0], 3),
          " ",
          V.ramp(),
          `${V.num(scale[1], 3)}. The colors span all 95 % intervals (in brackets), so cells that differ by noise look alike.`,
        )
      : null;
    if (keys.length === 2) return [heat(points, keys, r.metric, scale), colors];
    if (keys.length !== 3) return null;
    const parts = [...keys].sort((a, b) => valuesOf(points, a).length - valuesOf(points, b).length)[0];
    const others = keys.filter((key) => key !== parts);
    const maps = valuesOf(points, parts).map((value) =>
      heat(
        points.filter((p) => p.keys[parts] === value),
        others,
        `${r.metric}, ${parts} ${value},`,
        scale,
      ),
    );
    return [el.div({ class: "two" }, maps), colors];
  }

  function heat(points, [rowKey, columnKey], metric, [low, high]) {
    const values = (key) => valuesOf(points, key);
    const cell = (row, column) => {
      const point = points.find((p) => p.keys[rowKey] === row && p.keys[columnKey] === column);
      const m = point && mean(point);
      if (m === null || m === undefined) return el.td("\u2013");
      const share = high > low ? (m - low) / (high - low) : 0.5;
      return el.td(
        { class: "heat", style: { "background-color": V.sequential(share), color: V.onSequential(share) } },
        el.b(V.num(m, 3)),
        point.interval.low === null || point.interval.low === undefined
          ? null
          : el.small(` [${V.num(point.interval.low, 2)}, ${V.num(point.interval.high, 2)}]`),
      );
    };
    const map = el.table(
      { class: "heat-map" },
      el.thead(
        el.tr(
          el.th({ scope: "col" }, `${rowKey} \\ ${columnKey}`),
          values(columnKey).map((c) => el.th({ scope: "col" }, String(c))),
        ),
      ),
      el.tbody(
        values(rowKey).map((row) =>
          el.tr(
            el.th({ scope: "row" }, String(row)),
            values(columnKey).map((column) => cell(row, column)),
          ),
        ),
      ),
    );
    return V.panel(`${metric} by ${rowKey} and ${columnKey}`, el.div({ class: "wide" }, map));
  }

  function table(points, keys, r, runs) {
    const sign = r.mode === "min" ? 1 : -1;
    const ordered = [...points].sort((a, b) => sign * ((mean(a) ?? -Infinity) - (mean(b) ?? -Infinity)));
    // The line already has the keys, so the trial's number is enough.
    const called = (name) => (/^\d+(?=-)/.exec(name) || [name])[0];
    const trials = (point) =>
      point.trials.map((t, i) => [
        i ? " " : "",
        runs[t.name] ? V.link(V.to("run", [runs[t.name]]), { title: t.name }, called(t.name)) : called(t.name),
      ]);
    const ends = span(points);
    return V.table(
      [...keys, `#${r.metric}`, "~picture of the interval", "95 % interval", "state", "runs"],
      ordered.map((p) =>
        el.tr(
          keys.map((k) => V.cell(String(p.keys[k]))),
          V.number(V.num(mean(p), 3)),
          V.cell(p.interval ? V.interval(p.interval, ends) : ""),
          V.cell(p.interval && p.interval.low !== null ? `[${V.num(p.interval.low, 3)}, ${V.num(p.interval.high, 3)}]` : ""),
          V.cell(p.status),
          V.cell(trials(p)),
        ),
      ),
    );
  }
})();

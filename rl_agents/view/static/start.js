"use strict";
// The start page: all runs in a table, their curves side by side.
(() => {
  const V = window.view;
  const { el } = V;
  const SHOWN = [
    "rollout/success_rate",
    "eval/success_rate",
    "rollout/return_mean",
    "rollout/turns_mean",
    "rollout/response_length_mean",
    "rollout/zero_advantage_share",
    "actor/entropy",
    "actor/ppo_kl",
    "actor/engine_logprob_gap_max",
    "rollout_corr/ess",
    "rollout/staleness_mean",
    "search/score_mean",
    "search/frontier_size",
    "truncation/ratio",
    "rollout/failed_episodes",
    "timing_s/iteration",
  ];
  let chosen = new Set();
  const kept = new Map(); // run -> stamp and series

  V.route(
    "start",
    async () => {
      const data = await V.ask("runs");
      V.edit = data.edit;
      V.crumbs([]);
      const names = data.runs.map((run) => run.name);
      const answers = await Promise.all(names.map((name) => V.ask("series", { run: name })));
      const series = new Map(answers.map((answer) => [answer.run, answer.series]));
      const body = el(
        "div",
        {},
        table(data),
        data.sweeps.length ? sweeps(data.sweeps) : null,
        curves(data, series),
        ends(data, answers),
      );
      const news = data.runs.map((run) => `${run.name}: iteration ${run.iteration}, ${run.status}`).join("; ");
      return { title: names.length === 1 ? names[0] : `${names.length} runs`, body, news };
    },
    { live: true },
  );

  function table(data) {
    const rows = data.runs.map((run) => {
      const s = run.settings,
        e = run.evaluation;
      const number = data.bands.findIndex((band) => band.includes(run.name));
      return el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          el("span", { class: "key", style: { "background-color": V.stroke(number).stroke } }),
          V.link(V.to("run", [run.name]), { "data-row": true }, run.name),
        ),
        V.cell(s.algo || ""),
        V.cell(s.env || ""),
        V.number(s.seed ?? ""),
        V.cell(status(run)),
        V.number([run.iteration, run.planned ? el("span", { class: "quiet" }, ` / ${run.planned}`) : null]),
        V.number(V.num(run.success, 2)),
        V.number(e ? [V.num(e.rate, 2), el("span", { class: "quiet" }, ` [${V.num(e.low, 2)}, ${V.num(e.high, 2)}]`)] : "\u2013"),
        V.number(V.duration(run.seconds)),
        V.cell(
          run.last === null
            ? el("span", { class: "quiet" }, run.pool ? "no episode yet" : "no pool")
            : V.link(V.to("i", [run.name, run.last]), { class: "go" }, `${V.iterationName(run.last)}`),
        ),
      );
    });
    return el(
      "section",
      {},
      el("h1", {}, "Runs"),
      V.table(
        [
          "run",
          "algorithm",
          "environment",
          "#seed",
          "state",
          "#iterations",
          "#success in rollouts",
          "#success on test tasks",
          "#time",
          "last iteration",
        ],
        el("tbody", {}, rows),
      ),
    );
  }

  const status = (run) => el("span", { class: `state ${run.status}` }, run.status || "\u2013");
  const sweeps = (names) =>
    el(
      "p",
      {},
      "Sweeps: ",
      names.map((name, i) => [i ? ", " : "", V.link(V.to("sweep", [name]), {}, name)]),
    );

  function curves(data, series) {
    const tags = [...new Set([...series.values()].flatMap((s) => Object.keys(s)))].sort();
    if (!tags.length) return V.empty("No curve yet.", "metrics.jsonl gets a line when an iteration is complete.");
    const plots = el("div", { class: "plots" });
    const draw = () => {
      const shown = [...SHOWN.filter((tag) => tags.includes(tag)).slice(0, 9), ...chosen];
      plots.replaceChildren(...[...new Set(shown)].map((tag) => chart(tag, data, series)).filter(Boolean));
    };
    draw();
    return el(
      "section",
      {},
      el("div", { class: "between" }, el("h2", {}, "Curves"), picker(tags, draw)),
      legend(data),
      plots,
      el(
        "p",
        { class: "quiet" },
        "Against completed iterations. Runs that differ in their seed alone are one curve, with a band from the lowest to the highest. A click leads to the iteration.",
      ),
    );
  }

  // Where a click on an iteration of the metrics leads: to what was sampled for it, as far as the pool has it.
  const opens = (data, run) => (at) => {
    const last = data.runs.find((one) => one.name === run).last;
    if (last !== null && last !== undefined) location.hash = V.to("i", [run, Math.max(0, Math.min(at - 1, last))]);
  };

  function ends(data, answers) {
    const plots = answers.map(({ run, ends }) => V.ends(run, ends, opens(data, run))).filter(Boolean);
    if (!plots.length) return null;
    return el(
      "details",
      { class: "ends-of", open: plots.length <= 6, "data-key": "ends" },
      el("summary", {}, el("h2", {}, "How episodes ended")),
      el("div", { class: "plots" }, plots),
    );
  }

  function picker(tags, draw) {
    const list = el(
      "datalist",
      { id: "tags" },
      tags.map((tag) => el("option", { value: tag })),
    );
    const input = el("input", { list: "tags", placeholder: "another curve", "aria-label": "Add a curve", spellcheck: "false" });
    input.addEventListener("change", () => {
      const found = tags.filter((tag) => tag === input.value || (input.value.length > 2 && tag.startsWith(input.value)));
      found.forEach((tag) => chosen.add(tag));
      if (found.length) input.value = "";
      draw();
    });
    return el("span", {}, input, list);
  }

  const bandName = (band) => (band.length === 1 ? band[0] : `${band[0]} and ${V.count(band.length - 1, "other seed")}`);
  const legend = (data) =>
    data.bands.length < 2
      ? null
      : el(
          "ul",
          { class: "legend" },
          data.bands.map((band, i) =>
            el("li", {}, el("span", { class: "key", style: { "background-color": V.stroke(i).stroke } }), bandName(band)),
          ),
        );

  function chart(tag, data, series) {
    const lines = data.bands.map((band, index) => ({
      name: bandName(band),
      index,
      run: band[0],
      points: V.band(band.map((name) => series.get(name)[tag] || [])),
    }));
    return V.chart(tag, lines, { open: ({ at, line }) => opens(data, line.run)(at) });
  }

  V.route(
    "run",
    async ({ parts: [run] }) => {
      const [data, { ends }] = await Promise.all([V.ask("iterations", { run }), V.ask("series", { run })]);
      V.crumbs([["", run]]);
      const rows = data.rows.map((row) => iteration(run, row));
      const searched = /^(3spo|chain-search)$/.test(data.settings.algo || "");
      const body = el(
        "div",
        {},
        el(
          "div",
          { class: "between" },
          el("h1", {}, run),
          searched ? V.link(V.to("searches", [run]), { class: "go" }, "search trees") : null,
        ),
        V.facts(
          ["algo", "env", "seed", "model", "lr", "gamma", "lam", "group_size", "tasks_per_iteration"].map((name) => [
            name,
            data.settings[name] === undefined ? null : String(data.settings[name]),
          ]),
        ),
        rows.length
          ? V.table(
              [
                "iteration",
                "#success",
                "#return",
                "#turns",
                "#zero advantage",
                "#invalid",
                "#broken",
                "#entropy",
                "#largest gap",
                "ended by",
              ],
              el("tbody", {}, rows),
            )
          : V.empty("No iteration yet."),
        ends.points.length ? el("h2", {}, "How episodes ended") : null,
        ends.points.length ? el("div", { class: "plots" }, V.ends(run, ends, openIteration(run, data.rows))) : null,
        el(
          "details",
          { class: "panel" },
          el("summary", {}, "All keys of the run"),
          V.facts(Object.entries(data.settings).map(([k, v]) => [k, JSON.stringify(v)])),
        ),
      );
      return { title: run, body, news: rows.length ? `${run}: now with ${V.iterationName(data.rows[0].iteration)}` : "" };
    },
    { live: true },
  );

  const openIteration = (run, rows) => (at) => {
    const row = rows.find((one) => one.iteration === at - 1 && one.sampled);
    if (row) location.hash = V.to("i", [run, row.iteration]);
  };

  function iteration(run, row) {
    const f = row.figures;
    const causes = Object.entries(row.causes)
      .sort((a, b) => b[1] - a[1])
      .map(([name, share]) => `${name} ${V.num(share, 2)}`)
      .join(", ");
    const name = V.iterationName(row.iteration);
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        row.sampled
          ? V.link(V.to("i", [run, row.iteration]), { "data-row": true }, name)
          : el("span", { title: "not in the pool" }, name),
      ),
      [
        "rollout/success_rate",
        "rollout/return_mean",
        "rollout/turns_mean",
        "rollout/zero_advantage_share",
        "rollout/invalid_action_share",
        "rollout/failed_episodes",
        "actor/entropy",
        "actor/engine_logprob_gap_max",
      ].map((tag) =>
        V.number(V.num(f[tag], Number.isInteger(f[tag]) && tag.endsWith("episodes") ? null : tag.includes("gap") ? null : 2)),
      ),
      V.cell(causes || (row.sampled && !Object.keys(f).length ? el("span", { class: "quiet" }, "under way") : "")),
    );
  }
})();

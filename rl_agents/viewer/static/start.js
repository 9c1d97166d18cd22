"use strict";
// The start page: all runs in a table, their curves side by side.
(() => {
  const V = window.view;
  const { el } = V;
  const SHOWN = [
    "eval/success_rate",
    "rollout/success_rate",
    "rollout/return_mean",
    "rollout/turns_mean",
    "rollout/response_length_mean",
    "rollout/zero_advantage_share",
    "actor/entropy",
    "actor/ppo_kl",
    "rollout_corr/logprob_diff_max",
    "rollout_corr/ess",
    "rollout/staleness_mean",
    "search/score_mean",
    "search/frontier_size",
    "truncation/ratio",
    "rollout/failed_episodes",
    "timing_s/iteration",
  ];
  const HEADS =
    "run, #test success, #rollout success, #iterations, state, algorithm, environment, #seed, #time, last iteration".split(", ");
  let chosen = new Set();

  V.live("start", async () => {
    const data = await V.ask("runs");
    V.crumbs();
    const names = data.runs.map((run) => run.name);
    const answers = await Promise.all(names.map((name) => V.ask("series", { run: name })));
    const series = new Map(answers.map((answer) => [answer.run, answer]));
    const body = el.div(table(data), data.sweeps.length ? sweeps(data.sweeps) : null, curves(data, series), ends(data, answers));
    const news = data.runs.map((run) => `${run.name}: iteration ${run.iteration}, ${run.status}`).join("; ");
    return { title: names.length === 1 ? names[0] : `${names.length} runs`, body, news };
  });

  function table(data) {
    const rows = data.runs.map((run) => {
      const s = run.settings,
        e = run.evaluation;
      const number = data.bands.findIndex((band) => band.includes(run.name));
      return el.tr(
        el.th(
          { scope: "row" },
          V.swatch(V.stroke(number).stroke),
          V.link(V.to("run", [run.name]), { "data-row": true }, run.name),
        ),
        V.number(e ? [el.b(V.num(e.rate, 2)), el.span({ class: "quiet", title: e.note }, between(e))] : "\u2013"),
        V.number(V.num(run.success, 2)),
        V.number([run.iteration, run.planned ? el.span({ class: "quiet" }, ` / ${run.planned}`) : null]),
        V.cell(status(run)),
        V.cell(s.algo || ""),
        V.cell(s.env || ""),
        V.number(s.seed ?? ""),
        V.number(V.duration(run.seconds)),
        V.cell(
          run.last === null
            ? el.span({ class: "quiet" }, run.pool ? "no episode yet" : "no pool")
            : V.link(V.to("i", [run.name, run.last]), { class: "go" }, `${V.iterationName(run.last)}`),
        ),
      );
    });
    return el.section(el.h1("Runs"), V.table(HEADS, rows));
  }

  const between = (e) => (Number.isFinite(e.low) && Number.isFinite(e.high) ? ` [${V.num(e.low, 2)}, ${V.num(e.high, 2)}]` : "");
  const status = (run) => el.span({ class: `state ${run.status}` }, run.status || "\u2013");
  const sweeps = (names) =>
    el.p(
      "Sweeps: ",
      names.map((name, i) => [i ? ", " : "", V.link(V.to("sweep", [name]), name)]),
    );

  function curves(data, series) {
    const tags = [...new Set([...series.values()].flatMap((answer) => Object.keys(answer.series)))].sort();
    if (!tags.length) return V.empty("No curve yet.", "metrics.jsonl gets a line when an iteration is complete.");
    // Runs on different environments share no axis, because their values are not comparable.
    const bands = data.bands.map((names, index) => ({ names, index, env: environment(data, names[0]) }));
    const environments = [...new Set(bands.map((band) => band.env))];
    const sections = el.div();
    const draw = () => {
      const shown = [...SHOWN.filter((tag) => tags.includes(tag)).slice(0, environments.length > 1 ? 6 : 9), ...chosen];
      sections.replaceChildren(
        ...environments.flatMap((env) => {
          const own = bands.filter((band) => band.env === env);
          const plots = [...new Set(shown)].map((tag) => chart(tag, own, data, series)).filter(Boolean);
          return [
            environments.length > 1 ? el.h3(env) : "",
            bands.length > 1 ? V.legend(own.map(({ names, index }) => [V.stroke(index).stroke, bandName(names)])) : "",
            el.div({ class: "plots" }, plots),
          ];
        }),
      );
    };
    draw();
    return el.section(
      el.div({ class: "between" }, el.h2("Curves"), V.axes([...series.values()].map((answer) => answer.axes)), picker(tags, draw)),
      sections,
      el.p(
        { class: "quiet" },
        "Runs that differ only in their seed are one curve: the mean, with a band from lowest to highest. Click a curve to open its iteration.",
      ),
    );
  }
  const environment = (data, run) => data.runs.find((one) => one.name === run).settings.env || "";

  // The link of an iteration: its groups, if the pool has them.
  const opens = (data, run) => (at) => {
    const last = data.runs.find((one) => one.name === run).last;
    if (last !== null && last !== undefined) location.hash = V.to("i", [run, Math.max(0, Math.min(at - 1, last))]);
  };

  function ends(data, answers) {
    const plots = answers.map(({ run, ends }) => V.ends(run, ends, opens(data, run))).filter(Boolean);
    if (!plots.length) return null;
    return el.details(
      { class: "ends-of", open: plots.length <= 6, "data-key": "ends" },
      el.summary(el.h2("How episodes ended")),
      el.div({ class: "plots" }, plots),
    );
  }

  function picker(tags, draw) {
    const list = el.datalist(
      { id: "tags" },
      tags.map((tag) => el.option({ value: tag })),
    );
    const input = el.input({ list: "tags", placeholder: "Add a curve", "aria-label": "Add a curve", spellcheck: "false" });
    input.addEventListener("change", () => {
      const found = tags.filter((tag) => tag === input.value || (input.value.length > 2 && tag.startsWith(input.value)));
      found.forEach((tag) => chosen.add(tag));
      if (found.length) input.value = "";
      draw();
    });
    return el.span(input, list);
  }

  const bandName = (band) => (band.length === 1 ? band[0] : `${band[0]} and ${V.count(band.length - 1, "other seed")}`);

  function chart(tag, bands, data, series) {
    const lines = bands.map(({ names, index }) => ({
      name: bandName(names),
      index,
      run: names[0],
      points: V.band(names.map((name) => series.get(name).series[tag] || [])),
      axes: names.map((name) => series.get(name).axes),
    }));
    return V.chart(tag, lines, { open: ({ iteration, line }) => opens(data, line.run)(iteration) });
  }

  V.live("run", async ({ parts: [run] }) => {
    const [data, { series, axes, ends }] = await Promise.all([V.ask("iterations", { run }), V.ask("series", { run })]);
    V.crumbs(run);
    const evaluated = data.rows.some((row) => row.figures["eval/success_rate"] !== undefined);
    const columns = COLUMNS.filter(([, tag]) => evaluated || tag !== "eval/success_rate");
    const rows = data.rows.map((row) => iteration(run, row, columns));
    const known = new Set(data.rows.filter((row) => row.sampled).map((row) => row.iteration + 1));
    const open = (at) => known.has(at) && opens({ runs: [data.about] }, run)(at);
    const searched = data.settings.algo === "3spo";
    const body = el.div(
      el.div(
        { class: "between" },
        el.h1(run, el.span({ class: "quiet" }, ` \u00b7 ${data.settings.algo} on ${data.settings.env}`)),
        searched ? V.link(V.to("searches", [run]), { class: "go" }, "Search trees") : null,
        data.settings.task_sampling === "difficulty" ? V.link(V.to("curriculum", [run]), { class: "go" }, "Curriculum") : null,
      ),
      headline(data.about),
      el.div({ class: "between" }, el.h2("Curves"), V.axes([axes])),
      el.div({ class: "plots" }, success(series, open, [axes]), V.ends("How episodes ended", ends, open), further(series, open, [axes])),
      el.h2("Iterations"),
      rows.length
        ? V.table(["iteration", ...columns.map(([name]) => `#${name}`), "ended by"], rows)
        : V.empty("No iteration yet."),
      V.facts(
        ["seed", "model", "lr", "gamma", "gae_lambda", "group_size", "tasks_per_iteration"].map((name) => [
          name,
          data.settings[name] === undefined ? null : String(data.settings[name]),
        ]),
      ),
      el.details(
        { class: "panel" },
        el.summary("All keys of the run"),
        V.facts(Object.entries(data.settings).map(([k, v]) => [k, JSON.stringify(v)])),
      ),
    );
    return { title: run, body, news: rows.length ? `${run}: now with ${V.iterationName(data.rows[0].iteration)}` : "" };
  });

  // The headline: success on test tasks, and progress.
  function headline(about) {
    const e = about.evaluation;
    const stat = (name, value, note) => el.div(el.dt(name), el.dd(value), note ? el.dd({ class: "quiet" }, note) : null);
    const change = e && e.iteration > 0 ? `${V.num(e.start, 2)} at the start` : "";
    return el.dl(
      { class: "headline panel" },
      e
        ? stat(
            `Test success after ${V.count(e.iteration, "iteration")}`,
            V.num(e.rate, 2),
            [between(e).trim(), change, e.note].filter(Boolean).join(" \u00b7 "),
          )
        : null,
      about.success === null ? null : stat("Rollout success", V.num(about.success, 2), "last iteration"),
      stat("Iterations", about.iteration, about.planned ? `of ${about.planned}` : ""),
      stat("Time", V.duration(about.seconds), status(about)),
    );
  }

  // Success on test tasks with its interval, and of rollouts.
  function success(series, open, axes) {
    const [low, high] = ["low", "high"].map((part) => new Map(series[`eval/success_${part}`] || []));
    const tested = (series["eval/success_rate"] || []).map(([at, rate]) => [at, low.get(at) ?? rate, rate, high.get(at) ?? rate]);
    const lines = [
      { name: "test tasks, 95 % interval", index: 0, axes, points: tested },
      { name: "rollouts", index: 1, axes, points: V.band([series["rollout/success_rate"] || []]) },
    ];
    return V.chart("Success rate", lines, { open: ({ iteration }) => open(iteration), legend: true });
  }
  // The return of rollouts, or their turns where the return is the success.
  function further(series, open, axes) {
    const [won, paid] = ["rollout/success_rate", "rollout/return_mean"].map((tag) => JSON.stringify(series[tag] || []));
    const [title, tag] =
      won === paid ? ["Mean turns of rollouts", "rollout/turns_mean"] : ["Mean return of rollouts", "rollout/return_mean"];
    const points = V.band([series[tag] || []]);
    return V.chart(title, [{ name: "rollouts", index: 1, axes, points }], { open: ({ iteration }) => open(iteration) });
  }

  const COLUMNS = [
    ["test success", "eval/success_rate"],
    ["success", "rollout/success_rate"],
    ["return", "rollout/return_mean"],
    ["turns", "rollout/turns_mean"],
    ["zero advantage", "rollout/zero_advantage_share"],
    ["invalid", "rollout/invalid_action_share"],
    ["failed", "rollout/failed_episodes"],
    ["entropy", "actor/entropy"],
    ["logprob mismatch", "rollout_corr/logprob_diff_max"],
  ];

  function iteration(run, row, columns) {
    const f = row.figures;
    const causes = Object.entries(row.causes)
      .sort((a, b) => b[1] - a[1])
      .map(([name, share]) => `${name} ${V.num(share, 2)}`)
      .join(", ");
    const name = V.iterationName(row.iteration);
    return el.tr(
      el.th(
        { scope: "row" },
        row.sampled
          ? V.link(V.to("i", [run, row.iteration]), { "data-row": true }, name)
          : el.span({ title: "not in the pool" }, name),
      ),
      columns.map(([, tag]) =>
        V.number(
          V.num(f[tag], Number.isInteger(f[tag]) && tag.endsWith("episodes") ? null : tag.includes("logprob_diff") ? null : 2),
        ),
      ),
      V.cell(causes || (row.sampled && !Object.keys(f).length ? el.span({ class: "quiet" }, "running") : "")),
    );
  }
})();

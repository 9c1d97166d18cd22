"use strict";
// One iteration: the steps with the lowest and highest advantages, and all groups as rows.
(() => {
  const V = window.view;
  const { el } = V;
  const OUTCOMES = [
    ["", "any outcome"],
    ["solved", "a member solved it"],
    ["unsolved", "a member failed"],
    ["failed", "environment error"],
    ["truncated", "a member was truncated"],
    ["invalid", "invalid action"],
  ];

  V.live("i", async ({ parts: [run, number], values }) => {
    const iteration = Number(number);
    const [data, steps] = await Promise.all([V.ask("groups", { run, iteration, ...values }), V.ask("steps", { run, iteration })]);
    V.crumbs([V.to("run", [run]), run], V.iterationName(iteration));
    const body = el.div(
      head(run, data, values.kind ? { kind: values.kind } : {}),
      extremes(run, steps),
      V.isExport() ? null : filters(run, iteration, values, data),
      groups(run, data, values),
    );
    const news = Object.entries(data.kinds).map(([kind, count]) => V.count(count, V.kindName(kind, 1)));
    return { title: `${V.iterationName(iteration)} \u00b7 ${run}`, body, news: news.join(", ") };
  });

  function head(run, data, chosen) {
    const beside = (to) => (to === null ? null : V.to("i", [run, to], chosen));
    const kinds = Object.entries(data.kinds).map(([kind, count]) =>
      V.link(
        V.to("i", [run, data.iteration], { kind }),
        { class: "tab", "aria-current": kind === data.kind ? "true" : null },
        `${V.num(count)} ${V.kindName(kind, count)}`,
      ),
    );
    return el.div(
      { class: "between" },
      el.h1(`Iteration ${data.iteration + 1}`, el.span({ class: "quiet" }, ` of ${run}`)),
      el.nav({ "aria-label": "Kinds of sessions" }, kinds),
      V.neighbors(
        "Neighboring iterations",
        [beside(data.around.before), "\u2190 previous"],
        [beside(data.around.after), "next \u2192"],
      ),
    );
  }
  const NAMES = { episode: "episode", sample: "sibling", gateway: "gateway session", evaluation: "evaluation", expert: "expert dialogue" };
  V.kindName = (kind, count = 2) => `${NAMES[kind] || kind}${count === 1 ? "" : "s"}`;

  function extremes(run, steps) {
    if (!steps.lowest.length)
      return steps.learned
        ? V.empty("All advantages are 0.", "The members of every group got the same reward, so there is no gradient.")
        : V.empty("Not trained on yet.", "Advantages appear when an update has used these steps.");
    const limit = V.largest([...steps.lowest, ...steps.highest].map((s) => s.advantage));
    const list = (rows) =>
      el.ol(
        { class: "extremes" },
        rows.map((row) =>
          el.li(
            V.link(
              V.to("e", [run, row.session], { step: row.ordinal }),
              { "data-row": true },
              V.advantage(row.advantage, limit),
              el.span({ class: "where" }, `${row.session} \u00b7 ${placed(row)}`),
              el.span({ class: "said" }, V.line(row.action, 110)),
            ),
          ),
        ),
      );
    return el.div(
      { class: "two" },
      V.panel("Lowest advantages", list(steps.lowest)),
      V.panel("Highest advantages", list(steps.highest)),
    );
  }

  // A step, or the last one of those of an episode with the same advantage.
  const placed = (row) => `${V.stepName(row.ordinal)}${row.alike > 1 ? `, the last of ${row.alike} with this value` : ""}`;

  function filters(run, iteration, values, data) {
    const select = (name, label, options) =>
      el.label(
        label,
        el.select(
          { name },
          options.map(([value, text]) => el.option({ value, selected: (values[name] || "") === value }, text)),
        ),
      );
    const field = (name, label, options) => el.label(label, el.input({ name, value: values[name] || "", ...options }));
    const form = el.form(
      { class: "filters", "aria-label": "Filter groups" },
      select("outcome", "outcome", OUTCOMES),
      select("cause", "ended by", [
        ["", "anything"],
        ...Object.entries(data.causes).map(([cause, count]) => [cause, `${cause} (${count})`]),
      ]),
      data.envs.length > 1 ? select("env", "environment", [["", "all"], ...data.envs.map((env) => [env, env])]) : null,
      field("min", "return from", { inputmode: "decimal", size: 5 }),
      field("max", "to", { inputmode: "decimal", size: 5 }),
      field("text", "words", { type: "search", size: 16, spellcheck: "false" }),
      el.label(
        { class: "check" },
        el.input({ type: "checkbox", name: "flat", value: "1", checked: values.flat === "1" }),
        "no gradient (all advantages 0)",
      ),
      el.button("Filter"),
      Object.keys(values).length ? V.link(V.to("i", [run, iteration]), "clear") : null,
    );
    const send = () => {
      location.hash = V.to("i", [run, iteration], {
        ...(values.kind ? { kind: values.kind } : {}),
        ...Object.fromEntries(new FormData(form)),
      });
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send();
    });
    form.addEventListener("change", (event) => {
      if (event.target.matches("select, [type=checkbox]")) send();
    });
    return form;
  }

  function groups(run, data, values) {
    if (!data.rows.length && data.next === null) return V.empty("No group matches.", "Clear the filters to see all of them.");
    const body = el.tbody();
    const returns = data.rows.flatMap((row) => row.members.map((m) => m.return)).filter((v) => v !== null);
    const scale = {
      low: Math.min(0, ...returns),
      high: Math.max(1e-9, ...returns),
      limit: V.largest(data.rows.flatMap((r) => r.members.flatMap((m) => m.advantages || []))),
    };
    const add = (rows) => body.append(...rows.map((row) => group(run, data, row, scale)));
    add(data.rows);
    const heads = "group, task, members, returns, #mean, #lowest advantage, #highest, #invalid, #steps, ended by".split(", ");
    return el.section(
      el.h2(data.kind === "sample" ? "States with their siblings" : "Groups"),
      V.table(heads, body),
      more(run, data, values, add),
    );
  }

  function more(run, data, values, add) {
    if (data.next === null) return null;
    let after = data.next;
    const button = el.button({ type: "button" }, "More groups");
    button.addEventListener("click", async () => {
      button.disabled = true;
      const next = await V.ask("groups", { run, iteration: data.iteration, ...values, after });
      add(next.rows);
      after = next.next;
      button.disabled = false;
      if (after === null) button.remove();
    });
    return button;
  }

  function group(run, data, row, { low, high, limit }) {
    const members = row.members,
      returns = members.map((m) => m.return).filter((v) => v !== null);
    const mean = returns.length ? returns.reduce((s, v) => s + v, 0) / returns.length : null;
    const advantages = members.flatMap((m) => m.advantages || []);
    const worst = members.reduce((a, b) => ((b.advantages || [0])[0] < (a.advantages || [0])[0] ? b : a));
    const causes = [...new Set(members.map((m) => m.cause.split(":")[0]))].join(", ");
    const bound = (of, show) => V.number(advantages.length ? show(V.advantage(of(...advantages), limit)) : "\u2013");
    return el.tr(
      el.th(
        { scope: "row" },
        V.link(V.to("g", [run, data.iteration, row.group], { kind: data.kind }), { "data-row": true }, `g${row.group}`),
      ),
      el.td({ class: "task" }, V.link(V.to("task", [row.task]), V.line(row.task, 36))),
      el.td(
        { class: "members" },
        members.map((m) =>
          V.link(
            V.to("e", [run, m.id]),
            {
              title: `${m.id}: return ${V.num(m.return)}, ${m.cause}`,
              "aria-label": `member ${m.member}, return ${V.num(m.return)}`,
            },
            V.result(m),
          ),
        ),
      ),
      V.cell(V.strip(returns, low, high, mean)),
      V.number(V.num(mean, 2)),
      bound(Math.min, (lowest) => V.link(V.to("e", [run, worst.id]), { class: "plain" }, lowest)),
      bound(Math.max, (highest) => highest),
      V.number(row.invalid ? V.num(row.invalid) : ""),
      V.number(V.num(members.reduce((s, m) => s + m.steps, 0))),
      V.cell(causes),
    );
  }
})();

"use strict";
// One task over iterations and runs; the tasks of a curriculum; two of its episodes side by side; full-text search in all episodes.
(() => {
  const V = window.view;
  const { el } = V;

  V.route("task", async ({ parts: [task], values }) => {
    const data = await V.ask("task", { task });
    V.crumbs(...(values.run ? [[V.to("run", [values.run]), values.run]] : []), `task ${task}`);
    const from = values.session ? { run: values.run, session: values.session } : null;
    const parts = Object.entries(data.runs).map(([run, rows]) => history(run, rows, from));
    const body = el.div(
      el.h1("Task ", V.line(task, 80)),
      el.p(
        { class: "quiet" },
        from
          ? `Compared with ${from.session} of ${from.run}: choose the other one.`
          : "Choose two episodes to compare: first one, then the other.",
      ),
      parts.length ? parts : V.empty("No episode of this task is in the pools."),
    );
    return { title: `task ${task}`, body };
  });

  function history(run, rows, from) {
    const body = rows.map((row) => {
      const same = from && from.run === run && from.session === row.id;
      const to = from
        ? V.to("diff", [from.run, from.session, run, row.id])
        : V.to("task", [row.task || V.place().parts[0]], { run, session: row.id });
      return el.tr(
        { class: same ? "this" : null },
        el.th({ scope: "row" }, V.link(V.to("e", [run, row.id]), { "data-row": true }, row.id)),
        V.cell(V.iterationName(row.iteration)),
        V.session(row),
        V.cell(same ? "this one" : V.link(to, from ? "compare" : "compare with \u2026")),
      );
    });
    return V.panel(run, V.table(["episode", "iteration", ...V.SESSION, "~comparison"], body));
  }

  V.live("curriculum", async ({ parts: [run] }) => {
    const data = await V.ask("curriculum", { run });
    V.crumbs([V.to("run", [run]), run], "curriculum");
    const rows = data.rows.map(([task, success, episodes, weight]) =>
      el.tr(
        el.th({ scope: "row" }, V.link(V.to("task", [task], { run }), { "data-row": true }, V.line(task, 80))),
        [V.num(success, 2), V.num(episodes, 1), weight ? V.num(weight, 3) : "retired"].map((cell) => V.number(cell)),
      ),
    );
    const said = `${V.count(data.tasks, "task")} at the checkpoint of iteration ${data.iteration}, the most frequently drawn first`;
    const body = el.div(
      el.h1("Curriculum of ", run),
      el.p({ class: "quiet" }, data.tasks > rows.length ? `${said}; ${rows.length} are shown.` : `${said}.`),
      rows.length ? V.table(["task", "#estimated success", "#recent episodes", "#weight"], rows) : V.empty("No checkpoint yet."),
    );
    return { title: `curriculum of ${run}`, body };
  });

  V.route("diff", async ({ parts: [run, session, other, second] }) => {
    const sides = await Promise.all([V.ask("episode", { run, session }), V.ask("episode", { run: other, session: second })]);
    const [a, b] = sides;
    const first = difference(a.steps, b.steps);
    V.crumbs([V.to("task", [a.task_id], { run, session }), `task ${a.task_id}`], `${session} and ${second}`);
    const head = sides.map((s) =>
      el.th(
        { scope: "col" },
        V.link(V.to("e", [s.run, s.id]), V.result(s), ` ${s.id}`),
        el.span(
          { class: "quiet" },
          ` ${s.run} \u00b7 return ${V.num(s.return)} \u00b7 ${V.count(s.steps.length, "step")} \u00b7 ${s.end_cause}`,
        ),
      ),
    );
    const rows = Array.from({ length: Math.max(a.steps.length, b.steps.length) }, (_, i) =>
      row(a.steps[i], b.steps[i], i, first),
    );
    const words =
      first.at === null
        ? "They are the same from the first step to the last."
        : first.part === "length"
          ? `Equal up to step ${first.at}, where one ends.`
          : `The first step that differs is ${V.stepName(first.at)}: another ${first.part}.`;
    const body = el.div(
      el.h1("Two episodes of one task"),
      a.task_id === b.task_id ? null : V.empty("These are different tasks."),
      el.p(
        { class: "finding" },
        words,
        " ",
        first.at === null
          ? null
          : el.button({ type: "button", class: "small", on: { click: () => goTo(`diff-${first.at}`) } }, "Go there"),
      ),
      V.sideBySide("two-sides", head, rows),
    );
    return { title: `${session} and ${second}`, body };
  });

  const goTo = (id) => document.getElementById(id).scrollIntoView({ block: "center" });

  function difference(a, b) {
    for (let i = 0; i < Math.min(a.length, b.length); i += 1) {
      if (a[i].observation !== b[i].observation) return { at: i, part: "observation" };
      if (a[i].action !== b[i].action) return { at: i, part: "action" };
    }
    return { at: a.length === b.length ? null : Math.min(a.length, b.length), part: "length" };
  }

  function row(a, b, number, first) {
    const side = (step, other) =>
      step &&
      el.div(
        { class: "step" },
        el.div(
          { class: "figures" },
          step.advantage === null ? null : V.advantage(step.advantage),
          step.reward ? el.span({ class: "quiet" }, `reward ${V.num(step.reward)}`) : null,
          el.span({ class: "quiet" }, `version ${step.version ?? "\u2013"}`),
        ),
        differing(step.observation, other && other.observation, "environment"),
        differing(step.action, other && other.action, "agent"),
      );
    return el.tr(
      { id: `diff-${number}`, class: number === first.at ? "differs" : null },
      el.th({ scope: "row" }, number + 1, number === first.at ? el.span({ class: "badge" }, "differs") : null),
      el.td(side(a, b)),
      el.td(side(b, a)),
    );
  }

  // The common beginning and end stay plain; the words between are marked.
  function differing(text, other, name) {
    if (other === undefined || other === text) return V.block(text, { class: name });
    const words = text.split(/(\s+)/),
      others = other.split(/(\s+)/);
    let start = 0,
      end = 0;
    while (start < words.length && start < others.length && words[start] === others[start]) start += 1;
    while (end < words.length - start && end < others.length - start && words.at(-1 - end) === others.at(-1 - end)) end += 1;
    const cut = words.length - end;
    return el.pre(
      { class: `text ${name}`, dir: "auto" },
      V.marked(words.slice(0, start).join("")),
      el.mark(V.marked(words.slice(start, cut).join(""))),
      V.marked(words.slice(cut).join("")),
    );
  }

  V.route("find", async ({ parts: [run], values }) => {
    const { runs } = await V.ask("runs");
    const name = run || runs[0].name,
      text = values.text || "";
    V.crumbs([V.to("run", [name]), name], `\u201c${text}\u201d`);
    const list = el.ol({ class: "hits" }),
      said = el.p({ class: "quiet", role: "status" });
    const other =
      runs.length > 1
        ? el.p(
            "In: ",
            runs
              .filter((r) => r.pool)
              .map((r) => [
                V.link(
                  V.to("find", [r.name], { text }),
                  { class: "tab", "aria-current": r.name === name ? "true" : null },
                  r.name,
                ),
                " ",
              ]),
          )
        : null;
    if (text) await search(name, text, list, said, null);
    return { title: `\u201c${text}\u201d in ${name}`, body: el.div(el.h1("Words in episodes"), other, list, said) };
  });

  const flat = (text) => text.replace(/\s+/g, " ");

  async function search(run, text, list, said, before) {
    const data = await V.ask("search", { run, text, before });
    list.append(
      ...data.hits.map((hit) =>
        el.li(
          V.link(
            V.to("e", [run, hit.session], { step: hit.ordinal }),
            { "data-row": true },
            el.span(
              { class: "where" },
              `${hit.session} \u00b7 ${V.stepName(hit.ordinal)} \u00b7 ${hit.part === "action" ? "agent" : "environment"}`,
            ),
            el.span({ class: "said" }, V.marked(flat(hit.lead)), el.mark(V.marked(hit.hit)), V.marked(flat(hit.tail))),
          ),
        ),
      ),
    );
    const found = V.count(list.children.length, "hit");
    if (data.next === null) said.replaceChildren(`${found}; all episodes searched.`);
    else {
      const share = Math.round(100 * (1 - data.next / Math.max(1, data.newest)));
      const button = el.button({ type: "button" }, "Search further");
      button.addEventListener("click", () => {
        button.disabled = true;
        search(run, text, list, said, data.next);
      });
      said.replaceChildren(`${found} in the newest ${share} %. `, button);
    }
  }
})();

"use strict";
// A group: its members side by side, aligned by step; deviations are marked.
(() => {
  const V = window.view;
  const { el } = V;

  V.route("g", async ({ parts: [run, iteration, number], values }) => {
    const data = await V.ask("group", { run, iteration, group: number, kind: values.kind || "episode" });
    V.crumbs(
      [V.to("run", [run]), run],
      [V.to("i", [run, data.iteration], { kind: data.kind }), V.iterationName(data.iteration)],
      `g${data.group}`,
    );
    const figures = data.figures;
    const body = el.div(
      el.h1(
        `Group ${data.group}`,
        el.span(
          { class: "quiet" },
          ` \u00b7 ${data.kind === "sample" ? "siblings sampled in one state" : "members of one task"}`,
        ),
      ),
      V.facts([
        ["task", V.link(V.to("task", [data.task]), V.marked(data.task))],
        ["members", V.num(figures.members)],
        [data.kind === "sample" ? "mean reward" : "mean return", V.num(figures.mean)],
        ["deviation", figures.deviation === null ? null : V.num(figures.deviation)],
        ["search", data.kind === "sample" ? V.link(V.to("searches", [run]), "trees") : null],
      ]),
      grid(run, data),
      data.left_out ? V.empty(`${data.left_out} more members are not shown.`) : null,
      el.p(
        { class: "quiet" },
        "Failures first. A mark shows where a member first acts differently from most members with the same history. Advantages: blue above zero, orange below.",
      ),
    );
    return { title: `g${data.group} \u00b7 ${V.iterationName(data.iteration)} \u00b7 ${run}`, body };
  });

  function grid(run, data) {
    const members = data.members,
      length = Math.max(...members.map((m) => m.list.length));
    const limit = V.largest(members.flatMap((m) => m.list.map((s) => s.advantage)));
    const parted = partings(members.map((m) => m.list.map((s) => s.action)));
    const head = members.map((m) =>
      el.th(
        { scope: "col" },
        V.link(V.to("e", [run, m.id]), { "data-row": true }, V.result(m), ` m${m.member}`),
        el.span({ class: "quiet" }, ` ${V.num(m.return)} \u00b7 ${V.count(m.steps, "step")}`),
      ),
    );
    const rows = Array.from({ length }, (_, step) =>
      el.tr(
        el.th({ scope: "row" }, step + 1),
        members.map((m, i) => el.td(cell(run, m, step, limit, parted[i]))),
      ),
    );
    const ends = el.tr(
      { class: "ends" },
      el.th({ scope: "row" }, "end"),
      members.map((m) => el.td(m.cause || "unknown")),
    );
    return V.sideBySide("", head, rows, ends);
  }

  // The first step at which each member differs from most members with the same past; -1: none.
  function partings(actions) {
    const found = actions.map(() => -1);
    let together = [actions.map((_, i) => i)];
    for (let step = 0; together.length; step += 1) {
      const next = [];
      for (const group of together) {
        const by = new Map();
        for (const i of group) if (step < actions[i].length) by.set(actions[i][step], [...(by.get(actions[i][step]) || []), i]);
        const parts = [...by.values()].sort((a, b) => b.length - a.length);
        parts
          .slice(1)
          .flat()
          .forEach((i) => {
            if (found[i] < 0) found[i] = step;
          });
        if (parts.length > 1 && parts[0].length === 1)
          parts[0].forEach((i) => {
            if (found[i] < 0) found[i] = step;
          });
        next.push(...parts.filter((part) => part.length > 1));
      }
      together = next;
    }
    return found;
  }

  function cell(run, member, number, limit, parted) {
    const step = member.list[number];
    if (!step) return null;
    const notes = [
      step.reward ? `reward ${V.num(step.reward)}` : null,
      step.value === null ? null : `value ${V.num(step.value, 2)}`,
    ]
      .filter(Boolean)
      .join(" \u00b7 ");
    return el.div(
      { class: `step ${parted === number ? "parts" : ""}` },
      el.div(
        { class: "figures" },
        parted === number ? el.span({ class: "badge" }, "diverges here") : null,
        step.advantage === null ? null : V.advantage(step.advantage, limit),
        step.summary ? el.span({ class: "badge" }, "summary") : null,
        step.valid ? null : el.span({ class: "badge warn" }, "invalid"),
        step.finish === "length" ? el.span({ class: "badge warn" }, "cut") : null,
        el.span({ class: "quiet" }, notes),
      ),
      el.details(
        { "data-key": `${member.id}.${number}` },
        el.summary(V.line(step.observation || "(nothing)", 70)),
        V.block(step.observation),
      ),
      V.link(V.to("e", [run, member.id], { step: number }), { class: "plain action" }, V.block(step.action)),
      step.thought
        ? el.details({ "data-key": `${member.id}.${number}.thought` }, el.summary("thoughts"), V.block(step.thought))
        : null,
      step.cut.action ? el.span({ class: "quiet" }, `${V.num(step.cut.action)} characters`) : null,
    );
  }
})();

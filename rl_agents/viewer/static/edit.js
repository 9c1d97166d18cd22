"use strict";
// Decisions about an episode: always shown, editable with --edit.
(() => {
  const V = window.view;
  const { el } = V;

  const worded = (d) => `${d.verdict}${d.value === null ? "" : ` ${V.num(d.value)}`}${d.ordinal < 0 ? "" : ` step ${d.ordinal}`}`;

  V.decisions = (run, data) => {
    if (!V.edit && !data.decisions.length) return null;
    const rows = data.decisions.map((d) =>
      el(
        "li",
        { class: d.undone ? "undone" : null },
        el("b", {}, worded(d)),
        d.by ? ` by ${d.by}` : "",
        d.why ? [": ", V.marked(d.why)] : "",
        d.undone ? " (undone)" : V.edit ? [" ", button("undo", () => send({ run, session: data.id, undo: d.number }))] : null,
      ),
    );
    return V.panel("Decisions", rows.length ? el("ul", {}, rows) : null, V.edit ? form(run, data, -1) : null);
  };

  V.stepEditor = (run, data, step) =>
    V.edit
      ? el("details", { class: "quiet-box" }, el("summary", {}, "Decide about this step"), form(run, data, step.ordinal))
      : null;

  const button = (name, act) => el("button", { type: "button", class: "small", on: { click: act } }, name);

  function form(run, data, ordinal) {
    const why = el("input", { placeholder: "why", "aria-label": "Why", size: 28, maxlength: 2000 });
    const value = el("input", { placeholder: "value", "aria-label": "Value", size: 6, inputmode: "decimal" });
    const problem = el("span", { class: "problem", role: "alert" });
    const decide = (verdict, numeric) => async () => {
      const number = value.value.trim() === "" ? NaN : Number(value.value);
      if (numeric && !Number.isFinite(number)) {
        problem.textContent = `${verdict} needs a number`;
        value.focus();
        return;
      }
      if (verdict === "note" && !why.value.trim()) {
        problem.textContent = "a note needs text";
        why.focus();
        return;
      }
      try {
        const sent = why.value;
        await send({ run, session: data.id, ordinal, verdict, why: sent, ...(numeric ? { value: number } : {}) }, () => {
          if (why.value === sent) why.value = "";
          value.value = "";
        });
      } catch (error) {
        problem.textContent = error.message;
      }
    };
    return el(
      "div",
      { class: "filters", "data-form": `${run}/${data.id}/${ordinal}` },
      why,
      value,
      button("exclude", decide("exclude")),
      button("keep", decide("keep")),
      button("note", decide("note")),
      button("set reward", decide("reward", true)),
      button("set weight", decide("weight", true)),
      problem,
    );
  }

  // `told` empties the submitted form; the other forms keep their contents when the page is redrawn.
  async function send(values, told = () => {}) {
    await V.tell(values);
    told();
    await V.draw(true);
  }
})();

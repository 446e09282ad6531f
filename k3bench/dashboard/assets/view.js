// Choosing what a figure shows (view, commit) and reading the chosen snapshot.
"use strict";

const view = (() => {
  const { el } = k3;
  const CLOCKS = { wall: "wall clock", device: "device clock" };

  const words = (of) =>
    [
      of.kind,
      k3.short(of.device, 40),
      of.clock ? CLOCKS[of.clock] : null,
      of.preset ? `preset ${of.preset}` : null,
    ]
      .filter(Boolean)
      .join(" · ");
  const commitWords = (index, at) => {
    if (at === null || at === undefined) return "no commit";
    const [hash, subject, date] = index.commits[at];
    return `${hash.slice(0, 10)} ${date} ${k3.short(subject, 60)}`;
  };

  // A labelled select; options are [value, text].
  const select = (label, name, options, value, changed) => {
    const control = el(
      "select",
      { id: `choose-${name}`, name },
      options.map(([option, text]) =>
        el("option", { value: option, selected: String(option) === String(value) }, text),
      ),
    );
    control.addEventListener("change", () => {
      k3.remember(name, control.value);
      changed(control.value);
    });
    return el("label", { class: "control", for: `choose-${name}` }, el("span", {}, label), control);
  };

  const chosen = (name, options) => {
    const wanted = k3.state.get(name);
    const found = options.find(([value]) => String(value) === wanted);
    return found ? found[0] : options.length ? options[0][0] : null;
  };

  // How many points of these families a commit has; of any, where families is null.
  const count = (entry, families) =>
    families === null
      ? entry[2]
      : families.reduce((sum, family) => sum + (entry[3][family] || 0), 0);

  // Rows of one snapshot as objects, with the names of their series.
  const rowsOf = async (index, series, viewNumber, entry) => {
    const snapshot = await k3.load(`snapshots/${entry[1]}`);
    const of = index.views[viewNumber];
    return snapshot.rows.map((values) => {
      const row = {};
      snapshot.columns.forEach((column, at) => {
        row[column] = values[at];
      });
      const [benchmark, parameters, variant, implementation, workload] = series.series[row.series];
      return {
        ...row,
        parameters,
        variant,
        shape: series.shapes[workload],
        benchmark: series.benchmarks[benchmark],
        implementation: series.implementations[implementation],
        workload: series.workloads[workload],
        kind: of.kind,
        device: of.device,
        clock: of.clock,
        preset: of.preset,
        commit: entry[0],
      };
    });
  };

  // The figure's rows as the table and the CSV show them.
  const COLUMNS = [
    { key: "kind", name: "kind" },
    { key: "device", name: "device" },
    { key: "clock", name: "clock" },
    { key: "preset", name: "preset" },
    { key: "commit_hash", name: "commit" },
    { key: "benchmark", name: "benchmark" },
    { key: "workload", name: "workload" },
    { key: "variant_text", name: "variant" },
    { key: "implementation", name: "implementation" },
    { key: "median_s", name: "median s" },
    { key: "p10_s", name: "p10 s" },
    { key: "p90_s", name: "p90 s" },
    { key: "n", name: "n" },
    { key: "correctness_status", name: "correctness" },
    { key: "id", name: "result" },
  ];
  const variantText = (row) =>
    Object.entries(row.variant)
      .map(([name, value]) => `${name}=${value}`)
      .join(" ");
  const tableRows = (index, rows) =>
    rows.map((row) => ({
      ...row,
      commit_hash: row.commit === null ? null : index.commits[row.commit][0],
      variant_text: variantText(row),
    }));

  const about = (index, of, at) =>
    [
      words(of),
      at === null || at === undefined ? null : `commit ${index.commits[at][0].slice(0, 10)}`,
    ]
      .filter(Boolean)
      .join(" · ");

  // Controls for a view and a commit among those that have one of the families, and below them
  // whatever draw(rows, {index, view, at, other}) returns. ``beside``: a second view may be laid
  // beside the first by name; kinds and devices are mixed in no other way. It opens with the view that
  // has most points of ``prefer``, which are the families unless given.
  const page = async (
    index,
    series,
    { families, prefer = families, kinds = null, beside = false, empty, draw },
  ) => {
    const usable = index.views
      .map((of, number) => ({ of, number, at: of.at.filter((entry) => count(entry, families)) }))
      .filter(({ of, at }) => at.length && (kinds === null || kinds.includes(of.kind)))
      .sort((a, b) => count(b.at[0], prefer) - count(a.at[0], prefer));
    const box = k3.pageBox();
    if (!usable.length) {
      box.replaceChildren(k3.nothing(...empty));
      return;
    }
    const viewOptions = usable.map(({ of, number }) => [number, words(of)]);
    const controls = el("form", { class: "controls", "aria-label": "What is shown" });
    controls.addEventListener("submit", (event) => event.preventDefault());
    const content = el("div", { id: "content", "aria-live": "polite" });
    box.replaceChildren(controls, content);
    let turn = 0;
    // Focus stays on the control that was used, although all are made again.
    const refresh = async () => {
      const focused = document.activeElement?.id;
      await update();
      if (focused) document.getElementById(focused)?.focus();
    };
    const update = async () => {
      const mine = ++turn;
      delete document.documentElement.dataset.drawn;
      const number = chosen("view", viewOptions);
      const here = usable.find((candidate) => candidate.number === number);
      const commitOptions = here.at.map((entry) => [
        entry[0] ?? "none",
        commitWords(index, entry[0]),
      ]);
      const commit = chosen("commit", commitOptions);
      const entry = here.at.find((candidate) => String(candidate[0] ?? "none") === String(commit));
      const others = usable.filter((candidate) => candidate.number !== number);
      const otherOptions = [
        ["none", "nothing"],
        ...others.map(({ of, number: other }) => [other, words(of)]),
      ];
      const other = beside ? chosen("beside", otherOptions) : "none";
      let laid = null;
      if (other !== "none") {
        const there = others.find((candidate) => candidate.number === other);
        // The same commit where it has one, else its newest.
        const at = there.at.find((candidate) => candidate[0] === entry[0]) || there.at[0];
        laid = { of: there.of, at: at[0], rows: await rowsOf(index, series, other, at) };
      }
      const rows = await rowsOf(index, series, number, entry);
      if (mine !== turn) return;
      const own = draw({ index, series, of: here.of, at: entry[0], rows, other: laid, refresh });
      controls.replaceChildren(
        select("Figures", "view", viewOptions, number, refresh),
        select("Commit", "commit", commitOptions, commit, refresh),
        ...(beside
          ? [select("Lay beside (another kind or device)", "beside", otherOptions, other, refresh)]
          : []),
        ...(own.controls || []),
      );
      content.replaceChildren(...own.content);
      document.documentElement.dataset.drawn = String(mine);
    };
    await update();
  };

  // Implementations in the ladder's order, the others after it by name; numbers fix their look.
  const order = (index, names) => {
    const rank = (name) =>
      index.ladder.includes(name) ? index.ladder.indexOf(name) : index.ladder.length;
    return [...new Set(names)].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  };
  const looks = (index, series) =>
    new Map(order(index, series.implementations).map((name, at) => [name, theme.style(at)]));

  return {
    words,
    about,
    select,
    chosen,
    page,
    rowsOf,
    tableRows,
    COLUMNS,
    variantText,
    order,
    looks,
    commitWords,
  };
})();

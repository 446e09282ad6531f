// The ladder as a waterfall: what each rung saves at one workload.
"use strict";

k3.start(async (index, series) => {
  const FAMILIES = ["kda-headline", "kda-grid", "kda-series", "replay", "other"];

  const rungsOf = (rows) => {
    const newest = new Map();
    for (const row of rows) newest.set(row.implementation, row);
    const onLadder = index.ladder.filter((name) => newest.has(name));
    const names =
      onLadder.length > 1
        ? onLadder
        : [...newest.keys()].sort(
            (a, b) => (newest.get(b).median_s || 0) - (newest.get(a).median_s || 0),
          );
    return { ladder: onLadder.length > 1, rungs: names.map((name) => newest.get(name)) };
  };

  const waterfall = (id, title, about, note, rungs) => {
    const timed = rungs.filter((row) => row.median_s !== null);
    const first = timed.length ? timed[0].median_s : null;
    const table = rungs.map((row, at) => {
      const before = rungs
        .slice(0, at)
        .reverse()
        .find((earlier) => earlier.median_s !== null);
      return {
        ...row,
        saved_s: row.median_s !== null && before ? before.median_s - row.median_s : null,
        step: row.median_s !== null && before ? before.median_s / row.median_s : null,
        gain: row.median_s !== null && first ? first / row.median_s : null,
      };
    });
    const columns = [
      ...view.COLUMNS.filter(
        (column) => !["p10_s", "p90_s", "variant_text", "id"].includes(column.key),
      ),
      { key: "saved_s", name: "saved s" },
      { key: "step", name: "gain over the rung before" },
      { key: "gain", name: "gain over the first" },
      { key: "id", name: "result" },
    ];
    const chart = (width) => {
      const narrow = width < 520;
      const shown = table.filter((row) => row.median_s !== null);
      const bars = shown.map((row, at) => ({
        name: row.implementation,
        id: row.id,
        value: at === 0 ? row.median_s * 1e3 : -row.saved_s * 1e3,
        measure: at === 0 ? "absolute" : "relative",
        text: at === 0 ? `${k3.milliseconds(row.median_s)} ms` : `${row.step.toPrecision(3)}x`,
        hover: `${row.implementation}: ${k3.milliseconds(row.median_s)} ms${at ? `, ${row.step.toPrecision(3)}x over the rung before, ${row.gain.toPrecision(3)}x over the first` : ""}`,
      }));
      if (shown.length > 1) {
        const last = shown[shown.length - 1];
        bars.push({
          name: "what is left",
          id: last.id,
          value: 0,
          measure: "total",
          text: `${k3.milliseconds(last.median_s)} ms`,
          hover: `left: ${k3.milliseconds(last.median_s)} ms, ${last.gain.toPrecision(3)}x`,
        });
      }
      return {
        data: [
          {
            type: "waterfall",
            orientation: narrow ? "h" : "v",
            [narrow ? "y" : "x"]: bars.map((bar) =>
              theme.label(narrow ? `${k3.short(bar.name, 16)}, ${bar.text}` : bar.name, 32),
            ),
            [narrow ? "x" : "y"]: bars.map((bar) => bar.value),
            measure: bars.map((bar) => bar.measure),
            text: bars.map((bar) => bar.text),
            textposition: narrow ? "none" : "outside",
            cliponaxis: false,
            hovertext: bars.map((bar) => theme.label(bar.hover, 160)),
            hoverinfo: "text",
            customdata: bars.map((bar) => bar.id),
            decreasing: { marker: { color: "#009E73" } },
            increasing: { marker: { color: "#D55E00" } },
            totals: { marker: { color: "#0072B2" } },
            connector: { line: { color: theme.css("--rule"), width: 1, dash: "dot" } },
          },
        ],
        layout: {
          ...theme.layout({ margin: { l: 10, r: 12, t: 26, b: 44 }, showlegend: false }),
          height: narrow ? 90 + bars.length * 42 : 380,
          ...(narrow
            ? {
                xaxis: theme.axis({ title: "ms a call", rangemode: "tozero" }),
                yaxis: {
                  ...theme.axis({ type: "category" }),
                  autorange: "reversed",
                  showgrid: false,
                },
              }
            : {
                yaxis: theme.axis({ title: "ms a call", rangemode: "tozero" }),
                xaxis: { ...theme.axis({ type: "category" }), showgrid: false },
              }),
        },
      };
    };
    return figures.figure({
      id,
      title,
      about,
      note,
      chart,
      columns,
      rows: view.tableRows(index, table),
    });
  };

  const useful = (rows) =>
    rows.filter(
      (row) =>
        FAMILIES.includes(row.shape.family) &&
        row.benchmark.includes("kda") &&
        !Object.keys(row.variant).length &&
        row.kind !== "compiled",
    );
  // Published figures of one workload may answer several questions; the ladder's own come first.
  const preferred = (rows) => {
    const benchmarks = [...new Set(rows.map((row) => row.benchmark))].sort(
      (a, b) => b.includes("ladder") - a.includes("ladder") || a.localeCompare(b),
    );
    return rows.filter((row) => row.benchmark === benchmarks[0]);
  };

  await view.page(index, series, {
    families: FAMILIES,
    kinds: ["measured", "modelled", "published"],
    beside: true,
    empty: [
      "no KDA prefill implementation",
      "asv run --bench compiled_kda 'HEAD^!'\nmake dashboard",
    ],
    draw: ({ of, at, rows, other, refresh }) => {
      const here = useful(rows);
      const counted = (name) => preferred(here.filter((row) => row.workload === name)).length;
      const names = [...new Set(here.map((row) => row.workload))]
        .filter((name) => counted(name) > 1)
        .sort(
          (a, b) =>
            (b === "kda-headline") - (a === "kda-headline") ||
            a.localeCompare(b, "en", { numeric: true }),
        );
      if (!names.length)
        return { content: [k3.el("p", {}, "No workload of this commit has two implementations.")] };
      const options = names.map((name) => [name, k3.short(name, 50)]);
      const workload = view.chosen("workload", options);
      const part = (id, of_, at_, all) => {
        const mine = preferred(useful(all).filter((row) => row.workload === workload));
        if (!mine.length)
          return k3.el("p", { class: "note" }, `${view.words(of_)} has nothing at ${workload}.`);
        const { ladder, rungs } = rungsOf(mine);
        const wrong = rungs
          .filter((row) => row.median_s === null)
          .map((row) => `${row.implementation} (${row.correctness_status})`);
        const note = [
          ladder
            ? "Rungs in the ladder's order; each bar is what the rung saves."
            : "No ladder here: implementations from slowest to fastest.",
          wrong.length ? `Not timed: ${wrong.join(", ")}.` : null,
          mine[0].shape.provenance === "fixed" ? null : `Workload: ${mine[0].shape.label}.`,
        ]
          .filter(Boolean)
          .join(" ");
        return waterfall(
          id,
          `Ablation at ${k3.short(workload, 50)}`,
          view.about(index, of_, at_),
          note,
          rungs,
        );
      };
      return {
        controls: [view.select("Workload", "workload", options, workload, refresh)],
        content: [
          part("ablation", of, at, rows),
          ...(other ? [part("ablation-beside", other.of, other.at, other.rows)] : []),
        ],
      };
    },
  });
});

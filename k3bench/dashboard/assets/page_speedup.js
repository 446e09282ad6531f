// Speed-up over a baseline: the 8 x 7 grid, the replays as rows of their own, summaries apart.
"use strict";

k3.start(async (index, series) => {
  const { el } = k3;
  const LENGTHS = [8, 16, 32, 64, 128, 256, 512, 1024];
  const BATCHES = [1, 2, 4, 8, 16, 32, 64];

  const summary = (title, cells, largest) => {
    const known = cells.filter((cell) => cell.speedup !== null);
    if (!known.length)
      return el(
        "section",
        { class: "card" },
        el("h2", {}, title),
        el("p", {}, "No point has both implementations."),
      );
    const ratios = known.map((cell) => cell.speedup);
    const mean = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
    const big = known.reduce((best, cell) => (largest(cell) > largest(best) ? cell : best));
    const facts = [
      ["Range", `${k3.number(Math.min(...ratios))}x to ${k3.number(Math.max(...ratios))}x`],
      ["Geometric mean", `${k3.number(mean)}x over ${known.length} of ${cells.length} points`],
      [`Largest case (${big.name})`, `${k3.number(big.speedup)}x`],
    ];
    return el(
      "section",
      { class: "card" },
      el("h2", {}, title),
      el(
        "dl",
        {},
        facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
      ),
    );
  };

  const cellOf = (rows, baseline, candidate, name, fits) => {
    const find = (implementation) =>
      rows.find((row) => row.implementation === implementation && fits(row));
    const [slow, fast] = [find(baseline), find(candidate)];
    const speedup =
      slow && fast && slow.median_s && fast.median_s ? slow.median_s / fast.median_s : null;
    const status = fast && fast.median_s === null ? fast.correctness_status : null;
    const any = fast || slow;
    return {
      name,
      speedup,
      status,
      workload: any ? any.workload : null,
      S: any?.shape.S ?? null,
      B: any?.shape.B ?? null,
      baseline_s: slow ? slow.median_s : null,
      candidate_s: fast ? fast.median_s : null,
      id: fast ? fast.id : null,
      tokens: any ? any.tokens : 0,
    };
  };

  const heatmap = (id, title, about, note, cells, across, down, of) => {
    const chart = (width) => {
      const narrow = width < 520;
      const grid = down.map((row) =>
        across.map((column) => cells.find((cell) => cell.row === row && cell.column === column)),
      );
      const z = grid.map((row) =>
        row.map((cell) => (cell && cell.speedup !== null ? Math.log2(cell.speedup) : null)),
      );
      const most = Math.max(
        0.2,
        ...z
          .flat()
          .filter((value) => value !== null)
          .map(Math.abs),
      );
      const text = grid.map((row) =>
        row.map((cell) =>
          !cell
            ? ""
            : cell.speedup !== null
              ? narrow
                ? cell.speedup.toPrecision(2)
                : `${cell.speedup.toPrecision(3)}x`
              : cell.status === "wrong" || cell.status === "failed"
                ? cell.status
                : "",
        ),
      );
      const hover = grid.map((row) =>
        row.map((cell) =>
          cell
            ? theme.label(
                `${cell.name}: ${cell.speedup === null ? "no speed-up" : `${k3.number(cell.speedup)}x, ${k3.milliseconds(cell.baseline_s)} ms to ${k3.milliseconds(cell.candidate_s)} ms`}`,
                160,
              )
            : "",
        ),
      );
      const exact = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64].filter(
        (value) => Math.abs(Math.log2(value)) <= most + 1e-9,
      );
      return {
        data: [
          {
            type: "heatmap",
            x: across.map((name) => theme.label(name)),
            y: down.map((name) => theme.label(name, narrow ? 22 : 32)),
            z,
            text,
            hovertext: hover,
            hoverinfo: "text",
            customdata: grid.map((row) => row.map((cell) => (cell ? cell.id : null))),
            texttemplate: "%{text}",
            textfont: { size: narrow ? 10 : 12 },
            zmin: -most,
            zmax: most,
            xgap: 1,
            ygap: 1,
            showscale: !narrow && down.length > 3,
            colorscale: [
              [0, "#D55E00"],
              [0.5, theme.css("--middle")],
              [1, "#0072B2"],
            ],
            colorbar: {
              title: { text: "speed-up", font: { size: 11 } },
              thickness: 10,
              tickvals: exact.map(Math.log2),
              ticktext: exact.map((value) => `${value}x`),
            },
          },
        ],
        layout: {
          ...theme.layout({ margin: { l: 10, r: 10, t: 10, b: 40 } }),
          height: 80 + down.length * (narrow ? 30 : 36),
          xaxis: { ...theme.axis({ title: "B, sequences", type: "category" }), showgrid: false },
          yaxis: { ...theme.axis({ type: "category" }), showgrid: false, autorange: "reversed" },
        },
      };
    };
    const columns = [
      { key: "kind", name: "kind" },
      { key: "device", name: "device" },
      { key: "workload", name: "workload" },
      { key: "baseline", name: "baseline" },
      { key: "candidate", name: "implementation" },
      { key: "baseline_s", name: "baseline s" },
      { key: "candidate_s", name: "median s" },
      { key: "speedup", name: "speed-up" },
      { key: "status", name: "not timed because" },
      { key: "id", name: "result" },
    ];
    const rows = cells
      .filter((cell) => cell.workload)
      .map((cell) => ({ ...cell, kind: of.kind, device: of.device }));
    return figures.figure({ id, title, about, note, chart, columns, rows });
  };

  await view.page(index, series, {
    families: ["kda-grid", "replay"],
    empty: [
      "no KDA prefill point of the fixed grid or of a replay",
      "K3BENCH_PRESET=device asv run --record-samples --bench kda_prefill 'HEAD^!'\nmake dashboard",
    ],
    draw: ({ of, at, rows, refresh }) => {
      const plain = rows.filter(
        (row) =>
          ["kda-grid", "replay"].includes(row.shape.family) && !Object.keys(row.variant).length,
      );
      const names = view
        .order(
          index,
          plain.map((row) => row.implementation),
        )
        .map((name) => [name, k3.short(name, 40)]);
      const baseline = view.chosen("baseline", names);
      // The last rung first: what the ladder leads to.
      const onLadder = names.filter(([name]) => index.ladder.includes(name)).reverse();
      const candidates = [
        ...onLadder,
        ...names.filter(([name]) => !index.ladder.includes(name)).reverse(),
      ];
      const candidate = view.chosen("candidate", candidates);
      const controls = [
        view.select("Baseline", "baseline", names, baseline, refresh),
        view.select("Implementation", "candidate", candidates, candidate, refresh),
      ];
      const about = `${view.about(index, of, at)} · ${k3.short(candidate, 40)} over ${k3.short(baseline, 40)}`;
      const named = (cell) => ({ ...cell, baseline, candidate });
      const grid = plain.filter((row) => row.shape.family === "kda-grid");
      const fixed = LENGTHS.flatMap((S) =>
        BATCHES.map((B) =>
          named({
            ...cellOf(
              grid,
              baseline,
              candidate,
              `S = ${S}, B = ${B}`,
              (row) => row.shape.S === S && row.shape.B === B,
            ),
            row: `S = ${S}`,
            column: `${B}`,
          }),
        ),
      );
      const replays = plain.filter((row) => row.shape.family === "replay");
      const lists = [...new Set(replays.map((row) => row.shape.lengths))].sort();
      const replayed = lists.flatMap((name) =>
        BATCHES.map((B) =>
          named({
            ...cellOf(
              replays,
              baseline,
              candidate,
              `${name}, B = ${B}`,
              (row) => row.shape.lengths === name && row.shape.B === B,
            ),
            row: name,
            column: `${B}`,
            list: name,
          }),
        ),
      );
      const content = [];
      const cards = el("div", { class: "cards" });
      if (grid.length) {
        cards.append(summary("Fixed lengths", fixed, (cell) => cell.tokens));
        content.push(
          heatmap(
            "speedup-grid",
            "Fixed lengths: speed-up, S by B",
            about,
            "Blue is faster than the baseline, orange slower; every cell says its figure. Empty cells: not in the ledger.",
            fixed,
            BATCHES.map(String),
            LENGTHS.map((S) => `S = ${S}`),
            of,
          ),
        );
      }
      for (const name of lists) {
        const label = replays.find((row) => row.shape.lengths === name).shape.label;
        cards.append(
          summary(
            `${name} (${label})`,
            replayed.filter((cell) => cell.list === name),
            (cell) => cell.B,
          ),
        );
      }
      if (lists.length) {
        content.push(
          heatmap(
            "speedup-replay",
            "ShareGPT-derived replays: speed-up by B",
            about,
            "Each list is summarised on its own: never with the fixed lengths, and a surrogate never with the pinned distribution.",
            replayed,
            BATCHES.map(String),
            lists,
            of,
          ),
        );
      }
      return { controls, content: [cards, ...content] };
    },
  });
});

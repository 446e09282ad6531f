// Latency over batch size: a panel a sequence length on log axes, and the replays apart.
"use strict";

k3.start(async (index, series) => {
  const looks = view.looks(index, series);
  const LENGTHS = [8, 16, 32, 64, 128, 256, 512, 1024];

  // Each source is one view's rows; the second, if any, was laid beside by name.
  const lines = (sources) =>
    sources.flatMap(({ rows, of, suffix }) =>
      view
        .order(
          index,
          rows.map((row) => row.implementation),
        )
        .map((implementation) => ({
          name: implementation + suffix,
          look: looks.get(implementation),
          of,
          second: suffix !== "",
          rows: rows
            .filter((row) => row.implementation === implementation && row.median_s !== null)
            .sort((a, b) => a.shape.B - b.shape.B),
        })),
    );

  const traces = (line, panel, first) => {
    const { look, rows } = line;
    if (!rows.length) return [];
    const axes = {
      xaxis: `x${panel || ""}`,
      yaxis: `y${panel || ""}`,
      legendgroup: `line ${line.name}`,
    };
    const banded = rows.filter((row) => row.p10_s !== null && row.p90_s !== null);
    const band =
      banded.length > 1
        ? [
            {
              ...axes,
              type: "scatter",
              mode: "lines",
              fill: "toself",
              hoverinfo: "skip",
              showlegend: false,
              x: [
                ...banded.map((row) => row.shape.B),
                ...banded.map((row) => row.shape.B).reverse(),
              ],
              y: [
                ...banded.map((row) => row.p10_s * 1e3),
                ...banded.map((row) => row.p90_s * 1e3).reverse(),
              ],
              line: { width: 0 },
              fillcolor: theme.translucent(look.colour, 0.22),
            },
          ]
        : [];
    return [
      ...band,
      {
        ...axes,
        type: "scatter",
        mode: "lines+markers",
        name: theme.label(line.name),
        showlegend: first,
        x: rows.map((row) => row.shape.B),
        y: rows.map((row) => row.median_s * 1e3),
        customdata: rows.map((row) => row.id),
        hoverinfo: "text",
        hovertext: rows.map((row) =>
          theme.label(
            `${line.name}: B = ${row.shape.B}, median ${k3.milliseconds(row.median_s)} ms, p10 ${k3.milliseconds(row.p10_s)}, p90 ${k3.milliseconds(row.p90_s)}, n = ${row.n}`,
            200,
          ),
        ),
        line: { color: look.colour, width: line.second ? 1.2 : 2, dash: look.dash },
        marker: {
          color: line.second ? theme.css("--surface") : look.colour,
          symbol: look.mark,
          size: 7,
          line: { color: look.colour, width: 1.5 },
        },
        ...(banded.length === 1
          ? {
              error_y: {
                type: "data",
                symmetric: false,
                color: look.colour,
                thickness: 1,
                array: rows.map((row) => ((row.p90_s ?? row.median_s) - row.median_s) * 1e3),
                arrayminus: rows.map((row) => (row.median_s - (row.p10_s ?? row.median_s)) * 1e3),
              },
            }
          : {}),
      },
    ];
  };

  const panels = (id, title, about, groups, sources, unit, note) => {
    const all = lines(sources);
    const rows = sources.flatMap((source) => source.rows);
    const chart = (width) => {
      const columns = width >= 900 ? 4 : width >= 520 ? 2 : 1;
      const count = groups.length;
      const across = Math.min(columns, count);
      const down = Math.ceil(count / across);
      const gap = { x: across > 1 ? 0.05 : 0, y: down > 1 ? Math.min(0.12, 0.32 / down) : 0 };
      const wide = (1 - gap.x * (across - 1)) / across;
      const high = (1 - gap.y * (down - 1)) / down;
      const named = new Set();
      const layout = {
        annotations: [],
        height: Math.max(300, down * (across === 1 ? 235 : 265)) + 60,
      };
      const data = groups.flatMap((group, at) => {
        const panel = at === 0 ? "" : at + 1;
        const [column, row] = [at % across, Math.floor(at / across)];
        const x = [column * (wide + gap.x), column * (wide + gap.x) + wide];
        const top = 1 - row * (high + gap.y);
        const last = at + across >= count;
        layout[`xaxis${panel}`] = theme.axis({
          type: "log",
          domain: x,
          anchor: `y${panel}`,
          tickvals: [1, 2, 4, 8, 16, 32, 64],
          range: [-0.12, Math.log10(64) + 0.12],
          title: last ? "B, sequences" : "",
        });
        layout[`yaxis${panel}`] = theme.logAxis(
          sources
            .flatMap((source) => source.rows.filter(group.has))
            .flatMap((row) => [row.median_s, row.p10_s, row.p90_s])
            .map((seconds) => seconds * 1e3),
          {
            domain: [Math.max(0, top - high), Math.min(1, top)],
            anchor: `x${panel}`,
            title: column === 0 ? unit : "",
          },
        );
        layout.annotations.push({
          text: `<b>${theme.label(group.title, width < 520 ? 44 : 60)}</b>`,
          showarrow: false,
          xref: "paper",
          yref: "paper",
          x: x[0],
          y: top,
          xanchor: "left",
          yanchor: "bottom",
          font: { size: 12 },
        });
        return all.flatMap((line) => {
          const here = { ...line, rows: line.rows.filter(group.has) };
          const made = traces(here, panel, here.rows.length > 0 && !named.has(line.name));
          if (here.rows.length) named.add(line.name);
          return made;
        });
      });
      const legendRows = Math.ceil((named.size * 150) / Math.max(width, 300));
      const above = 26 + legendRows * 21;
      layout.height += above;
      const plotHeight = layout.height - above - 48;
      return {
        data,
        layout: {
          ...theme.layout({
            margin: { l: 58, r: 10, t: above, b: 48 },
            legend: {
              orientation: "h",
              x: 0,
              xanchor: "left",
              y: 1 + 24 / plotHeight,
              yanchor: "bottom",
            },
          }),
          ...layout,
          legendRows: 0,
        },
      };
    };
    return figures.figure({
      id,
      title,
      about,
      note,
      chart,
      columns: view.COLUMNS,
      rows: view.tableRows(index, rows),
    });
  };

  await view.page(index, series, {
    families: ["kda-grid", "replay"],
    beside: true,
    empty: [
      "no KDA prefill point of the fixed grid or of a replay",
      "K3BENCH_PRESET=device asv run --record-samples --bench kda_prefill 'HEAD^!'\nmake dashboard",
    ],
    draw: ({ of, at, rows, other }) => {
      const plain = (all, family) =>
        all.filter((row) => row.shape.family === family && !Object.keys(row.variant).length);
      const about =
        view.about(index, of, at) +
        (other ? `, beside ${view.about(index, other.of, other.at)}` : "");
      const sources = (family) => [
        { rows: plain(rows, family), of, suffix: "" },
        ...(other
          ? [
              {
                rows: plain(other.rows, family),
                of: other.of,
                suffix: ` (${other.of.kind}, ${k3.short(other.of.device, 20)})`,
              },
            ]
          : []),
      ];
      const content = [];
      const grid = sources("kda-grid");
      const present = LENGTHS.filter((S) =>
        grid.some((source) => source.rows.some((row) => row.shape.S === S)),
      );
      if (present.length) {
        content.push(
          panels(
            "latency-grid",
            "Fixed lengths: latency over batch size",
            about,
            present.map((S) => ({ title: `S = ${S} tokens`, has: (row) => row.shape.S === S })),
            grid,
            "ms a call",
            `Median of each point; the band spans p10 to p90 where samples were taken. ${present.length} of 8 sequence lengths are in the ledger.`,
          ),
        );
      }
      const replay = sources("replay");
      const lists = [
        ...new Set(replay.flatMap((source) => source.rows.map((row) => row.shape.lengths))),
      ].sort();
      if (lists.length) {
        const label = (name) =>
          replay.flatMap((source) => source.rows).find((row) => row.shape.lengths === name).shape
            .label;
        content.push(
          panels(
            "latency-replay",
            "ShareGPT-derived replays: time for the whole list",
            about,
            lists.map((name) => ({
              title: `${name} (${label(name)})`,
              has: (row) => row.shape.lengths === name,
            })),
            replay,
            "ms a replay",
            "A sample is one replay of a hundred drawn batches of B sequences. Not part of the fixed grid, and never averaged with it.",
          ),
        );
      }
      return {
        content: content.length
          ? content
          : [k3.el("p", {}, "This commit has no plain point of the grid or of a replay.")],
      };
    },
  });
});

// Modelled against published times: our rungs beside the rungs of that name, and the model's errors.
"use strict";

k3.start(async (index, series) => {
  const { el } = k3;
  const looks = view.looks(index, series);
  const errors = await k3.load("model");
  const box = k3.pageBox();

  // The figure is about both kinds at once: its axes say which is which.
  const scatter = async () => {
    const newest = async (kind) => {
      const rows = [];
      for (const [number, of] of index.views.entries()) {
        if (of.kind !== kind) continue;
        const seen = new Set();
        for (const entry of of.at.slice(0, 20)) {
          for (const row of await view.rowsOf(index, series, number, entry)) {
            if (row.median_s !== null && !seen.has(row.series)) {
              seen.add(row.series);
              rows.push(row);
            }
          }
        }
      }
      return rows;
    };
    const [modelled, published] = [await newest("modelled"), await newest("published")];
    const best = (row) =>
      published
        .filter(
          (other) =>
            other.device === row.device &&
            other.workload === row.workload &&
            other.implementation === row.implementation,
        )
        .sort((a, b) => b.benchmark.includes("ladder") - a.benchmark.includes("ladder"))[0];
    const pairs = modelled
      .map((row) => ({ row, other: best(row) }))
      .filter(({ other }) => other)
      .map(({ row, other }) => ({
        ...row,
        modelled_s: row.median_s,
        published_s: other.median_s,
        ratio: row.median_s / other.median_s,
        published_id: other.id,
      }));
    if (!pairs.length)
      return k3.nothing(
        "no modelled time stands beside a published one of the same workload and implementation",
        "k3bench ledger seed\nasv run --bench compiled_kda 'HEAD^!'\nmake dashboard",
      );
    const names = view.order(
      index,
      pairs.map((pair) => pair.implementation),
    );
    const chart = (width) => {
      const values = pairs.flatMap((pair) => [pair.modelled_s * 1e3, pair.published_s * 1e3]);
      const ends = [Math.min(...values) / 1.6, Math.max(...values) * 1.6];
      const legendRows = Math.ceil(((names.length + 1) * 130) / Math.max(width, 280));
      return {
        data: [
          {
            type: "scatter",
            mode: "lines",
            name: "equal",
            x: ends,
            y: ends,
            hoverinfo: "skip",
            line: { color: theme.css("--ink"), dash: "longdash", width: 1 },
          },
          ...names.map((name) => {
            const mine = pairs.filter((pair) => pair.implementation === name);
            const look = looks.get(name);
            return {
              type: "scatter",
              mode: "markers",
              name: theme.label(name),
              x: mine.map((pair) => pair.published_s * 1e3),
              y: mine.map((pair) => pair.modelled_s * 1e3),
              customdata: mine.map((pair) => pair.id),
              hoverinfo: "text",
              hovertext: mine.map((pair) =>
                theme.label(
                  `${name}, ${pair.workload}: modelled ${k3.milliseconds(pair.modelled_s)} ms, published ${k3.milliseconds(pair.published_s)} ms`,
                  160,
                ),
              ),
              marker: {
                color: look.colour,
                symbol: look.mark,
                size: 10,
                line: { color: theme.css("--ink"), width: 0.5 },
              },
            };
          }),
        ],
        layout: {
          ...theme.layout({
            margin: { l: 60, r: 14, t: 8 + legendRows * 21, b: 48 },
            legend: { orientation: "h", x: 0, xanchor: "left", y: 1.01, yanchor: "bottom" },
            showlegend: true,
          }),
          height: 400 + legendRows * 21,
          legendRows: 0,
          xaxis: theme.logAxis(ends, { title: "published, ms" }),
          yaxis: theme.logAxis(ends, { title: "modelled, ms" }),
        },
      };
    };
    const devices = [...new Set(pairs.map((pair) => pair.device))].join(", ");
    return figures.figure({
      id: "model-scatter",
      title: "Ours modelled against published rungs of the same name",
      about: `modelled and published · ${devices}`,
      chart,
      note: "Our kernels were written from the maths, not from the published ones: the distance from the line compares two kernels, not the model with a measurement.",
      columns: [
        { key: "device", name: "device" },
        { key: "workload", name: "workload" },
        { key: "implementation", name: "implementation" },
        { key: "modelled_s", name: "modelled s" },
        { key: "published_s", name: "published s" },
        { key: "ratio", name: "modelled / published" },
        { key: "id", name: "modelled result" },
      ],
      rows: pairs,
    });
  };

  const judged = () => {
    const names = [...new Set(errors.points.map((point) => point.implementation))];
    const chart = (width) => ({
      data: names.map((name, at) => {
        const mine = errors.points.filter((point) => point.implementation === name);
        const look = looks.get(name) || theme.style(at);
        return {
          type: "scatter",
          mode: "markers",
          name: theme.label(name),
          x: mine.map((point) => point.error * 100),
          y: mine.map(() => theme.label(name)),
          hoverinfo: "text",
          hovertext: mine.map((point) =>
            theme.label(`${name} at ${point.shape}: ${(point.error * 100).toFixed(1)}%`, 90),
          ),
          marker: {
            color: look.colour,
            symbol: look.mark,
            size: 9,
            opacity: 0.75,
            line: { color: theme.css("--ink"), width: 0.5 },
          },
        };
      }),
      layout: {
        ...theme.layout({ margin: { l: 10, r: 14, t: 12, b: 48 }, showlegend: false }),
        height: 110 + names.length * 34,
        xaxis: {
          ...theme.axis({ title: "modelled / published - 1, %" }),
          zeroline: true,
          zerolinecolor: theme.css("--ink"),
        },
        yaxis: { ...theme.axis({ type: "category" }), autorange: "reversed" },
      },
    });
    return figures.figure({
      id: "model-errors",
      title: "The model's error at the published points of the public kernels",
      about: "modelled against published · tpu-v6e",
      chart,
      note: `Mean ${(errors.mean_error * 100).toFixed(1)}%, worst ${(errors.worst_error * 100).toFixed(1)}% over ${errors.points.length} points, each judged with constants fitted on the half that it is not in.`,
      columns: [
        { key: "implementation", name: "public kernel" },
        { key: "shape", name: "shape" },
        { key: "error", name: "relative error" },
      ],
      rows: errors.points,
    });
  };

  const [first, second] = [await scatter(), judged()];
  box.replaceChildren(el("div", { id: "content" }, first, second));
  document.documentElement.dataset.drawn = "1";
});

// Composition of a step: device time by block over context, and shares of the time to first token.
"use strict";

k3.start(async (index, series) => {
  // Sums over other blocks, and clocks beside the kernels': never a part of the stack.
  const TOTALS = ["device_total", "total", "graphs_on_step", "itl", "ttft"];
  const title = (benchmark) =>
    benchmark
      .replace(/^published\./, "")
      .replaceAll("_", " ")
      .replaceAll(".", ": ");
  const contextOf = (row) =>
    row.parameters.context ?? row.shape.context ?? row.parameters.label ?? row.workload;
  const contextText = k3.tokens;
  const byContext = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));

  const stack = ({
    id,
    heading,
    about,
    note,
    contexts,
    parts,
    value,
    result,
    totals,
    rows,
    columns,
    unit,
    log,
  }) => {
    const chart = (width) => {
      const labels = contexts.map((context) => theme.label(contextText(context), 24));
      const data = parts.map((part, at) => {
        const look = theme.style(at);
        return {
          type: "bar",
          orientation: "h",
          name: theme.label(part.replaceAll("_", " "), 28),
          y: labels,
          x: contexts.map((context) => value(part, context)),
          customdata: contexts.map((context) => result(part, context)),
          hoverinfo: "text",
          hovertext: contexts.map((context) =>
            theme.label(
              `${part} at ${contextText(context)}: ${k3.number(value(part, context))} ${unit}`,
              120,
            ),
          ),
          marker: theme.bar(look),
        };
      });
      totals.forEach((part, at) =>
        data.push({
          type: "scatter",
          mode: "markers",
          name: theme.label(part.replaceAll("_", " "), 34),
          y: labels,
          x: contexts.map((context) => value(part, context)),
          customdata: contexts.map((context) => result(part, context)),
          hoverinfo: "text",
          hovertext: contexts.map((context) =>
            theme.label(
              `${part} at ${contextText(context)}: ${k3.number(value(part, context))} ${unit}`,
              120,
            ),
          ),
          marker: {
            symbol: at ? "x-thin" : "line-ns",
            size: 16,
            color: theme.css("--ink"),
            line: { width: 2, color: theme.css("--ink") },
          },
        }),
      );
      const legendRows = Math.ceil((data.length * 160) / Math.max(width, 280));
      return {
        data,
        layout: {
          ...theme.layout({
            margin: { l: 10, r: 16, t: 8 + legendRows * 21, b: 44 },
            barmode: log ? "group" : "stack",
            legend: {
              orientation: "h",
              x: 0,
              xanchor: "left",
              y: 1.01,
              yanchor: "bottom",
              traceorder: "normal",
            },
            showlegend: true,
          }),
          height: 96 + contexts.length * (log ? 18 * parts.length + 10 : 46) + legendRows * 21,
          legendRows: 0,
          xaxis: theme.axis({
            title: unit,
            ...(log ? { type: "log", dtick: 1 } : { rangemode: "tozero" }),
          }),
          yaxis: {
            ...theme.axis({ type: "category", title: "context, tokens" }),
            autorange: "reversed",
            showgrid: false,
          },
        },
      };
    };
    return figures.figure({ id, title: heading, about, note, chart, columns, rows });
  };

  const columns = [
    { key: "kind", name: "kind" },
    { key: "device", name: "device" },
    { key: "clock", name: "clock" },
    { key: "commit_hash", name: "commit" },
    { key: "benchmark", name: "benchmark" },
    { key: "implementation", name: "implementation" },
    { key: "context", name: "context" },
    { key: "block", name: "block" },
    { key: "median_s", name: "s" },
    { key: "id", name: "result" },
  ];

  const blocksFigure = (number, about, benchmark, rows) => {
    const contexts = [...new Set(rows.map(contextOf))].sort(byContext);
    const find = (part, context) =>
      rows.find((row) => row.parameters.block === part && contextOf(row) === context);
    const blocks = [...new Set(rows.map((row) => row.parameters.block))];
    const totals = blocks.filter((block) => TOTALS.includes(block));
    const parts = blocks.filter((block) => !TOTALS.includes(block));
    // One layer's time is no part of the whole pass: such blocks stand side by side.
    const layers = parts.length > 0 && parts.every((part) => part.endsWith("_layer"));
    return stack({
      id: `composition-${number}`,
      heading: layers
        ? `${title(benchmark)}: one layer of each kind`
        : `${title(benchmark)}: device time by block`,
      about,
      contexts,
      parts,
      totals: layers ? [] : totals,
      log: layers,
      unit: "ms",
      columns,
      value: (part, context) => {
        const row = find(part, context);
        return row && row.median_s !== null ? row.median_s * 1e3 : null;
      },
      result: (part, context) => find(part, context)?.id ?? null,
      note: layers
        ? "Log axis; time of a single layer, not of all layers together."
        : `Bars add up the blocks${totals.length ? `; marks stand for ${totals.map((name) => name.replaceAll("_", " ")).join(" and ")}` : ""}.`,
      rows: view
        .tableRows(index, rows)
        .map((row) => ({ ...row, context: contextOf(row), block: row.parameters.block })),
    });
  };

  const sharesFigure = (number, about, benchmark, rows) => {
    const names = [
      ...new Set(
        rows.flatMap((row) =>
          Object.keys(row.parameters).filter((name) => name.endsWith("_share_percent")),
        ),
      ),
    ];
    const parts = [...names.map((name) => name.replace("_share_percent", "")), "other"];
    const contexts = rows.map(contextOf).sort(byContext);
    const share = (part, context) => {
      const row = rows.find((candidate) => contextOf(candidate) === context);
      if (part !== "other") return row.parameters[`${part}_share_percent`] ?? null;
      return 100 - names.reduce((sum, name) => sum + (row.parameters[name] ?? 0), 0);
    };
    const flat = view
      .tableRows(index, rows)
      .map((row) => ({
        ...row,
        context: contextOf(row),
        ...Object.fromEntries(parts.map((part) => [part, share(part, contextOf(row))])),
      }));
    return stack({
      id: `composition-${number}`,
      heading: `${title(benchmark)}: shares by block`,
      about,
      contexts,
      parts,
      totals: [],
      unit: "% of the compute",
      value: share,
      result: (_, context) => rows.find((row) => contextOf(row) === context).id,
      note: `Shares are as published; "other" is the rest to 100%. ${contexts.map((context) => `${contextText(context)}: ${k3.milliseconds(rows.find((row) => contextOf(row) === context).median_s)} ms`).join(", ")}.`,
      columns: [
        ...columns.filter((column) => !["block", "id"].includes(column.key)),
        ...parts.map((part) => ({ key: part, name: `${part} %` })),
        { key: "id", name: "result" },
      ],
      rows: flat,
    });
  };

  await view.page(index, series, {
    families: ["composition"],
    empty: [
      "no composition, published or attributed from a trace",
      "k3bench ledger seed\nmake dashboard",
    ],
    draw: ({ of, at, rows }) => {
      const about = view.about(index, of, at);
      const groups = new Map();
      for (const row of rows) {
        const blocks = row.parameters.block !== undefined;
        if (!blocks && !Object.keys(row.parameters).some((name) => name.endsWith("_share_percent")))
          continue;
        const key = JSON.stringify([row.benchmark, row.implementation, blocks]);
        groups.set(key, [...(groups.get(key) || []), row]);
      }
      const content = [...groups].map(([key, mine], number) => {
        const [benchmark, implementation, blocks] = JSON.parse(key);
        return (blocks ? blocksFigure : sharesFigure)(
          number,
          `${about} · ${k3.short(implementation, 30)}`,
          benchmark,
          mine,
        );
      });
      const sources = [...new Set(rows.map((row) => row.workload))];
      return {
        content: content.length
          ? content
          : [k3.el("p", {}, `No composition in this view (${sources.length} workloads).`)],
      };
    },
  });
});

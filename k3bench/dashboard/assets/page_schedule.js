// The compiler's schedule: shares of cycles and use of slots (TPU), resources of kernels (GPU).
"use strict";

k3.start(async (index, series) => {
  const PARTS = ["mxu", "vector", "layout", "memory", "other", "stall"];
  const SLOTS = ["MXU", "XLU", "VALU", "EUP", "VLOAD", "VSTORE", "SALU", "VPOP", "FILL", "SPILL"];
  const RESOURCES = [
    "vgpr",
    "agpr",
    "lds_bytes",
    "occupancy",
    "rounds",
    "round_trips",
    "bytes_in_flight_per_cu",
    "scratch_bytes",
    "hbm_bytes",
  ];
  const IDENTITY = [
    { key: "kind", name: "kind" },
    { key: "device", name: "device" },
    { key: "workload", name: "workload" },
    { key: "variant_text", name: "variant" },
    { key: "implementation", name: "implementation" },
  ];
  const nameOf = (row) => [row.implementation, view.variantText(row)].filter(Boolean).join(" ");

  const bars = ({ id, title, about, note, rows, parts, prefix, stacked, axis }) => {
    const flat = view
      .tableRows(index, rows)
      .map((row) => ({
        ...row,
        ...Object.fromEntries(parts.map((part) => [part, row.figures[prefix + part] ?? null])),
      }));
    const columns = [
      ...IDENTITY,
      ...parts.map((part) => ({ key: part, name: part })),
      { key: "id", name: "result" },
    ];
    const chart = (width) => {
      const outer = stacked ? parts : rows.map(nameOf);
      const data = outer.map((name, at) => {
        const look = theme.style(at);
        const values = stacked ? flat.map((row) => row[name]) : parts.map((part) => flat[at][part]);
        const labels = (stacked ? rows.map(nameOf) : parts).map((label) => theme.label(label, 24));
        return {
          type: "bar",
          orientation: "h",
          name: theme.label(name, 24),
          y: labels,
          x: values.map((value) => (value === null ? null : value * 100)),
          customdata: stacked ? rows.map((row) => row.id) : parts.map(() => rows[at].id),
          hoverinfo: "text",
          hovertext: values.map(
            (value, place) =>
              `${labels[place]}, ${theme.label(name, 24)}: ${value === null ? "" : (value * 100).toFixed(2)}%`,
          ),
          marker: theme.bar(look),
          ...(stacked
            ? {
                text: values.map((value) =>
                  value !== null && value > 0.05 ? `${(value * 100).toFixed(0)}%` : "",
                ),
                textposition: "inside",
                insidetextanchor: "middle",
                textangle: 0,
                insidetextfont: { color: "#000", size: 11 },
              }
            : {}),
        };
      });
      const lines = stacked ? rows.length * 38 : parts.length * Math.max(26, rows.length * 9);
      const legendRows = Math.ceil((outer.length * 120) / Math.max(width, 280));
      const height = 90 + lines + legendRows * 21;
      return {
        data,
        layout: {
          ...theme.layout({
            margin: { l: 10, r: 14, t: 8 + legendRows * 21, b: 44 },
            barmode: stacked ? "stack" : "group",
            bargap: 0.25,
            legend: {
              orientation: "h",
              x: 0,
              xanchor: "left",
              y: 1.01,
              yanchor: "bottom",
              traceorder: "normal",
            },
          }),
          height,
          legendRows: 0,
          xaxis: theme.axis({
            title: axis,
            rangemode: "tozero",
            ...(stacked ? { range: [0, 100] } : {}),
          }),
          yaxis: { ...theme.axis({ type: "category" }), autorange: "reversed", showgrid: false },
        },
      };
    };
    return figures.figure({ id, title, about, note, chart, columns, rows: flat });
  };

  const resources = (rows, about) => {
    const flat = view
      .tableRows(index, rows)
      .map((row) => ({
        ...row,
        ...Object.fromEntries(RESOURCES.map((name) => [name, row.figures[name] ?? null])),
      }));
    return k3.el(
      "section",
      {},
      k3.el("h2", {}, "Resources of the compiled kernels"),
      k3.el("p", { class: "note" }, about),
      figures.table(
        "Resources of the compiled kernels",
        [
          ...IDENTITY,
          ...RESOURCES.map((name) => ({ key: name, name, plain: true })),
          { key: "id", name: "result" },
        ],
        flat,
      ),
    );
  };

  const EMPTY = [
    "no figure read from a compiler",
    "asv run --bench compiled 'HEAD^!'\nmake dashboard",
  ];
  await view.page(index, series, {
    families: null,
    kinds: ["compiled"],
    empty: EMPTY,
    draw: ({ of, at, rows, refresh }) => {
      const compiled = rows.filter((row) => row.figures);
      const names = [...new Set(compiled.map((row) => row.workload))].sort(
        (a, b) =>
          (b === "kda-headline") - (a === "kda-headline") ||
          a.localeCompare(b, "en", { numeric: true }),
      );
      if (!names.length) return { content: [k3.nothing(...EMPTY)] };
      const options = names.map((name) => [name, k3.short(name, 50)]);
      const workload = view.chosen("workload", options);
      const rank = view.order(
        index,
        compiled.map((row) => row.implementation),
      );
      const here = compiled
        .filter((row) => row.workload === workload)
        .sort((a, b) => rank.indexOf(a.implementation) - rank.indexOf(b.implementation));
      const scheduled = here.filter((row) =>
        Object.keys(row.figures).some((name) => name.startsWith("share.")),
      );
      const others = here.filter((row) => !scheduled.includes(row));
      const about = `${view.about(index, of, at)} · ${k3.short(workload, 50)}`;
      const content = [];
      if (scheduled.length) {
        content.push(
          bars({
            id: "breakdown",
            title: "Where the scheduled cycles go",
            about,
            note: "Shares of all cycles of the schedule; they sum to one. A stall is a bundle in which nothing issues.",
            rows: scheduled,
            parts: PARTS,
            prefix: "share.",
            stacked: true,
            axis: "% of scheduled cycles",
          }),
        );
        content.push(
          bars({
            id: "slots",
            title: "How full every slot is",
            about,
            note: "The part of a slot's capacity that the schedule fills.",
            rows: scheduled,
            parts: SLOTS.filter((slot) => scheduled.some((row) => `slot.${slot}` in row.figures)),
            prefix: "slot.",
            stacked: false,
            axis: "% of the slot's capacity",
          }),
        );
      }
      if (others.length) content.push(resources(others, about));
      return {
        controls: [view.select("Workload", "workload", options, workload, refresh)],
        content,
      };
    },
  });
});

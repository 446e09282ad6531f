// The roofline: achieved FLOP/s over arithmetic intensity, distance from the bound, K3 by block.
"use strict";

k3.start(async (index, series) => {
  const { el } = k3;
  const roofline = await k3.load("roofline");
  const SHOWN = 30;
  const { resource: resourceName, times } = rooflineK3;

  // A row's own statement goes before what was computed for its series.
  const pointsOf = (rows) =>
    rows
      .filter((row) => row.median_s > 0 && roofline.series[row.series])
      .map((row) => {
        const of = roofline.series[row.series];
        const own = (name) => row.figures?.[`roofline.${name}`];
        const flops = own("flops") ?? of.flops ?? row.figures?.flops ?? null;
        const hbm_bytes = own("hbm_bytes") ?? of.hbm_bytes ?? row.figures?.hbm_bytes ?? null;
        const bound_s = own("bound_s") ?? of.bound_s ?? null;
        const resource = own("limited_by") ?? of.limited_by ?? null;
        return {
          ...row,
          dtype: of.dtype ?? "bf16",
          flops,
          hbm_bytes,
          intensity: flops && hbm_bytes ? flops / hbm_bytes : null,
          flops_per_s: flops ? flops / row.median_s : null,
          bytes_per_s: hbm_bytes ? hbm_bytes / row.median_s : null,
          bound_s,
          limited_by: resourceName(resource),
          way: own("way") ?? of.way ?? null,
          times_bound: bound_s ? row.median_s / bound_s : null,
          stated: own("bound_s") ? "in the row" : bound_s ? "computed for this page" : null,
          none: bound_s ? null : (own("none") ?? of.none ?? null),
        };
      });

  const columns = [
    { key: "times_bound", name: "times the bound" },
    { key: "limited_by", name: "bound by" },
    { key: "benchmark", name: "benchmark" },
    { key: "workload", name: "workload" },
    { key: "variant_text", name: "variant" },
    { key: "implementation", name: "implementation" },
    { key: "median_s", name: "median s" },
    { key: "bound_s", name: "bound s (modelled)" },
    { key: "gflop_per_s", name: "GFLOP/s" },
    { key: "flops_share", name: "share of the matrix peak" },
    { key: "gb_per_s", name: "GB/s" },
    { key: "hbm_share", name: "share of the memory peak" },
    { key: "intensity", name: "FLOP/byte" },
    { key: "flops", name: "FLOPs", plain: true },
    { key: "hbm_bytes", name: "bytes", plain: true },
    { key: "dtype", name: "operands" },
    { key: "way", name: "fastest way" },
    { key: "stated", name: "bound stated" },
    { key: "none", name: "why no bound" },
    ...view.COLUMNS.slice(0, 5),
    { key: "correctness_status", name: "correctness" },
    { key: "id", name: "result" },
  ];

  const peakOf = (device, dtype) =>
    device.matrix_flops_per_s[dtype] ?? device.matrix_flops_per_s.bf16;
  const sourceOf = (device, dtype) => device.sources[dtype] ?? device.sources.bf16;
  const named = (point) =>
    [point.implementation, point.workload, view.variantText(point)].filter(Boolean).join(" ");

  const rate = (value) => `${Number((value / 1e12).toPrecision(4)).toLocaleString("en-US")} T`;

  const share = (value, peak) => (value && peak ? value / peak : null);

  const tableOf = (points, device) =>
    view
      .tableRows(index, points)
      .map((row) => ({
        ...row,
        gflop_per_s: row.flops_per_s ? row.flops_per_s / 1e9 : null,
        gb_per_s: row.bytes_per_s ? row.bytes_per_s / 1e9 : null,
        flops_share: share(
          row.flops_per_s,
          // A partition's peaks stand in its row.
          row.figures?.peak_flops_per_s ?? (device ? peakOf(device, row.dtype) : null),
        ),
        hbm_share: share(
          row.bytes_per_s,
          row.figures?.peak_hbm_bytes_per_s ?? device?.hbm_bytes_per_s,
        ),
      }))
      .sort((a, b) => (b.times_bound ?? -1) - (a.times_bound ?? -1));

  const plot = (id, about, of, points, rows) => {
    const device = roofline.devices[of.device] ?? null;
    const here = points.filter((point) => point.intensity);
    if (!here.length) return null;
    const names = view.order(
      index,
      here.map((point) => point.implementation),
    );
    const dtypes = [...new Set(here.map((point) => point.dtype))].sort();
    const peaks = device ? [...new Set(dtypes.map((dtype) => peakOf(device, dtype)))] : [];
    const intensities = here.map((point) => point.intensity);
    const ridges = device ? peaks.map((peak) => peak / device.hbm_bytes_per_s) : [];
    const [low, high] = [
      Math.min(...intensities, ...ridges) / 3,
      Math.max(...intensities, ...ridges) * 3,
    ];
    const chart = (width) => {
      const data = names.map((name, at) => {
        const mine = here.filter((point) => point.implementation === name);
        const look = theme.style(at);
        return {
          type: "scatter",
          mode: "markers",
          name: theme.label(name),
          x: mine.map((point) => point.intensity),
          y: mine.map((point) => point.flops_per_s / 1e9),
          customdata: mine.map((point) => point.id),
          hoverinfo: "text",
          hovertext: mine.map((point) =>
            theme.label(
              [
                `${named(point)}: ${k3.number(point.intensity)} FLOP/byte`,
                `${k3.number(point.flops_per_s / 1e9)} GFLOP/s`,
                ...(point.times_bound
                  ? [`${times(point.times_bound)} the bound (${point.limited_by})`]
                  : []),
              ].join(", "),
              170,
            ),
          ),
          marker: {
            color: look.colour,
            symbol: look.mark,
            size: 9,
            line: { color: theme.css("--ink"), width: 0.5 },
          },
        };
      });
      if (device) {
        dtypes.forEach((dtype, at) => {
          const peak = peakOf(device, dtype);
          const ridge = peak / device.hbm_bytes_per_s;
          data.push({
            type: "scatter",
            mode: "lines",
            name: theme.label(
              `${dtype} roof: ${rate(peak)}FLOP/s, ${rate(device.hbm_bytes_per_s)}B/s`,
              60,
            ),
            x: [low, ridge, high],
            y: [low * device.hbm_bytes_per_s, peak, peak].map((rate) => rate / 1e9),
            hoverinfo: "text",
            hovertext: theme.label(sourceOf(device, dtype), 170),
            line: { color: theme.css("--ink"), dash: at ? "dot" : "longdash", width: 1.5 },
          });
        });
      }
      const legendRows =
        Math.ceil((names.length * 150) / Math.max(width - 70, 220)) + (device ? dtypes.length : 0);
      const rates = [
        ...here.map((point) => point.flops_per_s),
        ...peaks,
        ...(device ? [low * device.hbm_bytes_per_s] : []),
      ].map((rate) => rate / 1e9);
      return {
        data,
        layout: {
          ...theme.layout({
            margin: { l: 60, r: 14, t: 8 + legendRows * 21, b: 48 },
            legend: { orientation: "h", x: 0, xanchor: "left", y: 1.01, yanchor: "bottom" },
            showlegend: true,
          }),
          height: 400 + legendRows * 21,
          legendRows: 0,
          xaxis: { ...theme.logAxis([low, high], { title: "FLOP a byte of memory" }) },
          yaxis: theme.logAxis(rates, { title: `GFLOP/s (${of.kind})` }),
        },
      };
    };
    const text = device
      ? `A mark is a point; on the line it would take its bound. FLOPs and bytes are what the call cannot do without, whatever the kernel does. ${dtypes.map((dtype) => sourceOf(device, dtype)).join(" ")}`
      : `The peaks of ${k3.short(of.device, 40)} are not known: rates, but no roof and no distance.`;
    return figures.figure({
      id,
      title: "Achieved FLOP/s over arithmetic intensity",
      about,
      chart,
      note: text,
      columns,
      rows,
    });
  };

  const distance = (id, about, of, rows) => {
    const far = rows.filter((row) => row.times_bound);
    if (!far.length) return null;
    const shown = far.slice(0, SHOWN);
    const chart = (width) => {
      const most = width < 560 ? 24 : 52;
      // Points may share a name (another benchmark's): the place keeps their rows apart.
      const labels = shown.map((row, at) => theme.label(`${at + 1}. ${named(row)}`, most));
      const resources = [...new Set(shown.map((row) => row.limited_by))].sort();
      return {
        data: resources.map((resource, at) => {
          const mine = shown
            .map((row, place) => ({ row, place }))
            .filter(({ row }) => row.limited_by === resource);
          const look = theme.style(at);
          return {
            type: "scatter",
            mode: "markers",
            name: theme.label(`bound by ${resource}`, 40),
            x: mine.map(({ row }) => row.times_bound),
            y: mine.map(({ place }) => labels[place]),
            customdata: mine.map(({ row }) => row.id),
            hoverinfo: "text",
            hovertext: mine.map(({ row }) =>
              theme.label(
                `${named(row)}: ${times(row.times_bound)}; ${k3.milliseconds(row.median_s)} ms against ${k3.milliseconds(row.bound_s)} ms`,
                170,
              ),
            ),
            marker: {
              color: look.colour,
              symbol: look.mark,
              size: 9,
              line: { color: theme.css("--ink"), width: 0.5 },
            },
          };
        }),
        layout: {
          ...theme.layout({
            margin: { l: 10, r: 16, t: 34, b: 44 },
            showlegend: true,
            shapes: [
              {
                type: "line",
                x0: 1,
                x1: 1,
                yref: "paper",
                y0: 0,
                y1: 1,
                line: { color: theme.css("--ink"), dash: "longdash", width: 1.5 },
              },
            ],
          }),
          height: 110 + shown.length * 20,
          legendRows: 0,
          xaxis: theme.logAxis([1, ...shown.map((row) => row.times_bound)], {
            title: "time over bound",
          }),
          yaxis: {
            ...theme.axis({ type: "category" }),
            categoryorder: "array",
            categoryarray: labels,
            autorange: "reversed",
          },
        },
      };
    };
    const nearer = far.some((row) => row.times_bound < 1)
      ? " Below 1 is faster than memory can be: what was read lay in a cache, or a clock is wrong."
      : "";
    const element = figures.figure({
      id,
      title:
        far.length > SHOWN
          ? `Distance from the bound: the ${SHOWN} farthest of ${far.length} points`
          : "Distance from the bound, farthest first",
      about,
      chart,
      note: `The bound is the time that no schedule of any way beats at the device's peaks, launches left out; the line is 1.${nearer}`,
      columns,
      rows,
    });
    element.querySelector("details").open = true;
    return element;
  };

  const figuresOf = (of, at, rows, suffix) => {
    const points = pointsOf(rows);
    if (!points.length) return [];
    const about = view.about(index, of, at);
    const table = tableOf(points, roofline.devices[of.device] ?? null);
    return [
      plot(`roofline-plot${suffix}`, about, of, points, table),
      distance(`roofline-distance${suffix}`, about, of, table),
    ].filter(Boolean);
  };

  const EMPTY = [
    "no timed point whose work is known",
    "asv run --bench compiled_ 'HEAD^!'\nmake dashboard",
  ];
  await view.page(index, series, {
    families: ["roofline"],
    prefer: ["bounded"],
    kinds: ["measured", "modelled"],
    beside: true,
    empty: EMPTY,
    draw: ({ of, at, rows, other }) => {
      const content = [
        ...figuresOf(of, at, rows, ""),
        // A second kind or device has panels of its own, under its own name.
        ...(other ? figuresOf(other.of, other.at, other.rows, "-beside") : []),
      ];
      return { content: content.length ? content : [k3.nothing(...EMPTY)] };
    },
  });
  const last = rooflineK3.figure(roofline.k3_decode);
  if (last) k3.pageBox().append(el("div", { id: "k3-decode" }, last));
});

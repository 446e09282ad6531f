// MLA decode: bytes of latent cache a second over context, against the device's peak bandwidth.
"use strict";

k3.start(async (index, series) => {
  const looks = view.looks(index, series);

  const pointsOf = (rows) =>
    rows
      .filter(
        (row) =>
          row.shape.family === "mla-decode" && row.shape.latent_bytes && row.median_s !== null,
      )
      .map((row) => ({
        ...row,
        context: row.shape.context,
        batch: row.shape.B,
        latent_bytes: row.shape.latent_bytes,
        bandwidth: row.shape.latent_bytes / row.median_s,
      }));

  const columns = [
    ...view.COLUMNS.slice(0, -1),
    { key: "context", name: "context tokens", plain: true },
    { key: "batch", name: "B", plain: true },
    { key: "latent_bytes", name: "latent cache bytes", plain: true },
    { key: "bandwidth", name: "bytes/s" },
    { key: "roof_share", name: "share of the roof" },
    { key: "id", name: "result" },
  ];

  const bandwidth = (about, sources, roofs) => {
    const groups = [];
    for (const { points, suffix } of sources) {
      for (const point of points) {
        const key = `${point.implementation}${suffix}, B = ${point.batch}${view.variantText(point) ? `, ${view.variantText(point)}` : ""}`;
        let group = groups.find((known) => known.key === key);
        if (!group)
          groups.push(
            (group = {
              key,
              second: suffix !== "",
              implementation: point.implementation,
              points: [],
            }),
          );
        group.points.push(point);
      }
    }
    groups.forEach((group) => group.points.sort((a, b) => a.context - b.context));
    const contexts = [
      ...new Set(groups.flatMap((group) => group.points.map((point) => point.context))),
    ].sort((a, b) => a - b);
    const rows = view.tableRows(
      index,
      sources.flatMap(({ points, roof }) =>
        points.map((point) => ({
          ...point,
          roof_share: roof ? point.bandwidth / roof.bytes_per_s : null,
        })),
      ),
    );
    const chart = (width) => {
      const data = groups.map((group, at) => {
        const look = { ...theme.style(at), mark: looks.get(group.implementation).mark };
        return {
          type: "scatter",
          mode: "lines+markers",
          name: theme.label(group.key, 44),
          x: group.points.map((point) => point.context),
          y: group.points.map((point) => point.bandwidth / 1e9),
          customdata: group.points.map((point) => point.id),
          hoverinfo: "text",
          hovertext: group.points.map((point) =>
            theme.label(
              `${group.key}: ${point.context} tokens, ${k3.number(point.bandwidth / 1e9)} GB/s, ${k3.milliseconds(point.median_s)} ms`,
              160,
            ),
          ),
          line: { color: look.colour, dash: look.dash, width: 2 },
          marker: {
            symbol: look.mark,
            size: 8,
            color: group.second ? theme.css("--surface") : look.colour,
            line: { color: look.colour, width: 1.5 },
          },
        };
      });
      for (const [device, roof] of roofs) {
        data.push({
          type: "scatter",
          mode: "lines",
          name: theme.label(`${device} peak: ${roof.bytes_per_s / 1e12} TB/s`, 50),
          x: [contexts[0] / 1.3, contexts[contexts.length - 1] * 1.3],
          y: [roof.bytes_per_s / 1e9, roof.bytes_per_s / 1e9],
          hoverinfo: "text",
          hovertext: theme.label(roof.source, 160),
          line: { color: theme.css("--ink"), dash: "longdash", width: 1.5 },
        });
      }
      const legendRows = Math.ceil((data.length * 210) / Math.max(width, 280));
      return {
        data,
        layout: {
          ...theme.layout({
            margin: { l: 60, r: 14, t: 8 + legendRows * 21, b: 60 },
            legend: { orientation: "h", x: 0, xanchor: "left", y: 1.01, yanchor: "bottom" },
            showlegend: true,
          }),
          height: 380 + legendRows * 21,
          legendRows: 0,
          xaxis: theme.axis({
            type: "log",
            title: "context, tokens a sequence",
            tickvals: contexts,
            ticktext: contexts.map((tokens) =>
              tokens >= 1e6
                ? "1M"
                : tokens >= 1024
                  ? `${k3.number(tokens / 1024).replace(/\.?0+$/, "")}K`
                  : `${tokens}`,
            ),
          }),
          yaxis: theme.logAxis(
            [
              ...groups.flatMap((group) => group.points.map((point) => point.bandwidth)),
              ...roofs.map(([, roof]) => roof.bytes_per_s),
            ].map((rate) => rate / 1e9),
            { title: "GB/s of latent cache" },
          ),
        },
      };
    };
    return figures.figure({
      id: "mla-bandwidth",
      title: "MLA decode: achieved bandwidth over context",
      about,
      chart,
      columns,
      rows,
      note: `Bytes are the latent cache read once (576 numbers a token), so a kernel that reads more shows less. ${roofs.length ? roofs.map(([, roof]) => `Roof: ${roof.source}.`).join(" ") : "No peak is on record for this device, so there is no roof."}`,
    });
  };

  const stages = (about, points) => {
    const parts = ["stage1", "stage2", "step"];
    const rows = view.tableRows(
      index,
      points
        .filter(
          (point) =>
            point.figures &&
            parts.some((part) => point.figures[`${part}.modelled_us`] !== undefined),
        )
        .map((point) => ({
          ...point,
          ...Object.fromEntries(
            parts.map((part) => [part, point.figures[`${part}.modelled_us`] ?? null]),
          ),
        })),
    );
    if (!rows.length) return null;
    const present = parts.filter((part) => rows.some((row) => row[part] !== null));
    const labels = rows.map((row) =>
      theme.label(`${k3.tokens(row.context)} x ${row.batch} ${view.variantText(row)}`, 30),
    );
    const chart = () => ({
      data: present.map((part, at) => {
        const look = theme.style(at);
        return {
          type: "bar",
          orientation: "h",
          name: part,
          y: labels,
          x: rows.map((row) => row[part]),
          customdata: rows.map((row) => row.id),
          hoverinfo: "text",
          hovertext: rows.map(
            (row, place) => `${labels[place]}: ${part} ${k3.number(row[part])} us`,
          ),
          marker: theme.bar(look),
        };
      }),
      layout: {
        ...theme.layout({
          margin: { l: 10, r: 14, t: 34, b: 44 },
          barmode: "stack",
          showlegend: true,
        }),
        height: 110 + rows.length * 34,
        legendRows: 0,
        xaxis: theme.axis({ title: "us a call (modelled)" }),
        yaxis: { ...theme.axis({ type: "category" }), autorange: "reversed", showgrid: false },
      },
    });
    return figures.figure({
      id: "mla-stages",
      title: "MLA decode: time by stage (context x batch)",
      about,
      chart,
      rows,
      columns: [
        ...view.COLUMNS.slice(0, 9),
        ...present.map((part) => ({ key: part, name: `${part} us` })),
        { key: "id", name: "result" },
      ],
    });
  };

  const EMPTY = ["no timed MLA decode point", "asv run --bench mla_ 'HEAD^!'\nmake dashboard"];
  await view.page(index, series, {
    families: ["mla-decode"],
    kinds: ["measured", "modelled", "published"],
    beside: true,
    empty: EMPTY,
    draw: ({ of, at, rows, other }) => {
      const roofOf = (device) => index.roofs[device] || null;
      const sources = [{ points: pointsOf(rows), suffix: "", roof: roofOf(of.device) }];
      if (other)
        sources.push({
          points: pointsOf(other.rows),
          suffix: ` (${other.of.kind}, ${k3.short(other.of.device, 20)})`,
          roof: roofOf(other.of.device),
        });
      if (!sources.some((source) => source.points.length))
        return { content: [k3.nothing(...EMPTY)] };
      const roofs = [...new Set([of.device, ...(other ? [other.of.device] : [])])]
        .filter(roofOf)
        .map((device) => [device, roofOf(device)]);
      const about =
        view.about(index, of, at) +
        (other ? `, beside ${view.about(index, other.of, other.at)}` : "");
      return {
        content: [
          bandwidth(about, sources, roofs),
          stages(view.about(index, of, at), sources[0].points),
        ].filter(Boolean),
      };
    },
  });
});

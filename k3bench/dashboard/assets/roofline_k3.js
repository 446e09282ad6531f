// K3's published decode step beside its bound, block by block, and the words that both figures use.
"use strict";

const rooflineK3 = (() => {
  const RESOURCES = { hbm: "memory", matrix: "matrix units", vector: "vector units" };
  const resource = (name) => (name ? (RESOURCES[name] ?? name) : null);
  const times = (value) => `${Number(value.toPrecision(3)).toLocaleString("en-US")} x`;

  const figure = (found) => {
    if (!found.rows.length) return null;
    const blocks = [...new Set(found.rows.map((row) => row.block))];
    const contexts = [...new Set(found.rows.map((row) => row.context))];
    const chart = (width) => {
      const legendRows = Math.ceil((blocks.length * 150) / Math.max(width - 70, 220));
      return {
        data: blocks.map((block, at) => {
          const mine = found.rows.filter((row) => row.block === block);
          const look = theme.style(at);
          return {
            type: "scatter",
            mode: "lines+markers",
            name: theme.label(block.replaceAll("_", " ")),
            x: mine.map((row) => row.context),
            y: mine.map((row) => row.ratio),
            hoverinfo: "text",
            hovertext: mine.map((row) =>
              theme.label(
                [
                  `${block} at ${k3.tokens(row.context)}: published ${k3.number(row.published_ms)} ms`,
                  `bound ${k3.number(row.bound_ms)} ms, ${times(row.ratio)}`,
                ].join(", "),
                150,
              ),
            ),
            line: { color: look.colour, dash: look.dash, width: 2 },
            marker: { symbol: look.mark, size: 8, color: look.colour },
          };
        }),
        layout: {
          ...theme.layout({
            margin: { l: 60, r: 14, t: 8 + legendRows * 21, b: 48 },
            legend: { orientation: "h", x: 0, xanchor: "left", y: 1.01, yanchor: "bottom" },
            showlegend: true,
          }),
          height: 340 + legendRows * 21,
          legendRows: 0,
          xaxis: theme.axis({
            type: "log",
            title: "context, tokens",
            tickvals: contexts,
            ticktext: contexts.map(k3.tokens),
          }),
          yaxis: theme.logAxis(
            found.rows.map((row) => row.ratio),
            { title: "published over bound" },
          ),
        },
      };
    };
    const element = figures.figure({
      id: "roofline-k3",
      title: "K3's decode step by block: published over bound",
      about: `published over modelled · ${found.hardware} · batch ${found.batch}, one of ${found.tp} ranks`,
      chart,
      note: `Times: ${found.source}. Bounds: weights, caches and states once at peak. ${found.peaks}`,
      columns: [
        { key: "block", name: "block" },
        { key: "context_text", name: "context" },
        { key: "bound_ms", name: "bound ms (modelled)" },
        { key: "published_ms", name: "published ms" },
        { key: "ratio", name: "published / bound" },
        { key: "bound_by", name: "bound by" },
        { key: "context", name: "tokens", plain: true },
        { key: "hardware", name: "device" },
        { key: "kind", name: "kind" },
      ],
      rows: found.rows
        .map((row) => ({
          ...row,
          context_text: k3.tokens(row.context),
          bound_by: resource(row.limited_by),
          hardware: found.hardware,
          kind: "published over modelled",
        }))
        .sort((a, b) => blocks.indexOf(a.block) - blocks.indexOf(b.block)),
    });
    element.querySelector("details").open = true;
    return element;
  };

  return { figure, resource, times };
})();

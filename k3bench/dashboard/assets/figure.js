// One figure: caption with kind and device, chart, downloads, and the table behind it.
"use strict";

const figures = (() => {
  const { el } = k3;
  const drawn = new Set();

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    drawn.forEach((draw) => draw()),
  );

  const save = (name, type, content) => {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = el("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };

  // A spreadsheet would run a cell that begins like a formula.
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(String(value)) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (columns, rows) =>
    [
      columns.map((column) => cell(column.name)),
      ...rows.map((row) => columns.map((column) => cell(row[column.key]))),
    ]
      .map((cells) => cells.join(","))
      .join("\r\n") + "\r\n";

  const shown = (column, row) => {
    const value = row[column.key];
    if (column.key === "id")
      return value ? el("a", { href: `point.html#id=${value}` }, value.slice(0, 8)) : "";
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return column.plain ? String(value) : k3.number(value);
    return k3.outside(value);
  };

  const table = (caption, columns, rows) => {
    const numeric = (column) => rows.some((row) => typeof row[column.key] === "number");
    const kinds = columns.map((column) => (numeric(column) ? "number" : "text"));
    return el(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
      el(
        "table",
        {},
        el("caption", { class: "unseen" }, caption),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            columns.map((column, at) => el("th", { scope: "col", class: kinds[at] }, column.name)),
          ),
        ),
        el(
          "tbody",
          {},
          rows.map((row) =>
            el(
              "tr",
              {},
              columns.map((column, at) =>
                el(
                  "td",
                  { class: kinds[at] === "text" ? k3.width(row[column.key]) : kinds[at] },
                  shown(column, row),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  };

  // chart(width) gives {data, layout} for plotly; table is {columns: [{key, name}], rows}.
  const figure = ({ id, title, about, note, chart, columns, rows, height = 360 }) => {
    const box = el("div", {
      class: "chart",
      role: "img",
      "aria-label": `${title}. ${about}. The table below holds the same figures.`,
    });
    const problem = el("p", { class: "problem", role: "alert", hidden: true });
    const saveSvg = async () => {
      const { data, layout } = chart(900);
      const heading = {
        text: `<b>${theme.label(title, 90)}</b><br>${theme.label(about, 140)}`,
        font: { size: 13 },
        x: 0,
        xref: "paper",
        y: 1,
        yref: "container",
        yanchor: "top",
        pad: { t: 10 },
      };
      const margin = { ...theme.layout().margin, ...layout.margin };
      const top = 52 + (layout.legendRows || 1) * 22;
      const whole = {
        ...layout,
        title: heading,
        width: 900,
        height: (layout.height || height) + top,
        margin: { ...margin, t: margin.t + top },
      };
      delete whole.legendRows;
      const url = await Plotly.toImage(
        { data, layout: whole },
        { format: "svg", width: whole.width, height: whole.height },
      );
      save(`${id}.svg`, "image/svg+xml", decodeURIComponent(url.slice(url.indexOf(",") + 1)));
    };
    const details = el("details", {}, el("summary", {}, `Table (${rows.length} rows)`));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1)
        details.append(table(title, columns, rows));
    });
    const element = el(
      "figure",
      { id },
      el("figcaption", {}, el("strong", {}, title), el("span", { class: "about" }, about)),
      problem,
      box,
      note ? el("p", { class: "note" }, note) : null,
      el(
        "div",
        { class: "actions" },
        el(
          "button",
          {
            type: "button",
            onclick: () =>
              saveSvg().catch((error) => {
                problem.hidden = false;
                problem.textContent = error.message;
              }),
          },
          "SVG",
        ),
        el(
          "button",
          { type: "button", onclick: () => save(`${id}.csv`, "text/csv", csv(columns, rows)) },
          "CSV",
        ),
        details,
      ),
    );
    const draw = () => {
      const { data, layout, click } = chart(box.clientWidth);
      delete layout.legendRows;
      Plotly.react(
        box,
        data,
        { height, ...layout },
        {
          displayModeBar: false,
          responsive: false,
          scrollZoom: false,
          doubleClick: false,
          showTips: false,
        },
      );
      if (!box.dataset.clicks) {
        box.dataset.clicks = "true";
        box.on("plotly_click", (event) => {
          const result = event.points
            .map((point) => point.customdata)
            .find((found) => typeof found === "string" && /^[0-9a-f]{32}$/.test(found));
          if (result) location.href = `point.html#id=${result}`;
        });
      }
    };
    // Drawn when the page has taken it up and whenever its width changes; given back when it leaves.
    let width = 0;
    new ResizeObserver((entries, observer) => {
      if (!element.isConnected && width === 0) return; // not taken up yet
      if (!element.isConnected) {
        drawn.delete(draw);
        observer.disconnect();
        Plotly.purge(box);
      } else if (box.clientWidth !== width) {
        width = box.clientWidth;
        drawn.add(draw);
        draw();
      }
    }).observe(box);
    return element;
  };

  return { figure, table, csv, save };
})();

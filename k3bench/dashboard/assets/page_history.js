// The history of one benchmark's point over commits: a line an implementation, with change points.
"use strict";

k3.start(async (index, series) => {
  const { el } = k3;
  const looks = view.looks(index, series);
  const box = k3.pageBox();
  const KEY = ["kind", "device", "clock", "preset"];
  const withCommits = series.series
    .map((entry, number) => ({ entry, number }))
    .filter(({ entry }) => entry[7] !== null);
  if (!withCommits.length) {
    box.replaceChildren(
      k3.nothing("no result of any commit", "asv run 'HEAD~5..HEAD'\nmake dashboard"),
    );
    return;
  }
  const viewKey = (entry) => JSON.stringify(entry[5]);
  const viewWords = (key) =>
    view.words(Object.fromEntries(JSON.parse(key).map((value, at) => [KEY[at], value])));
  const pointText = (entry) =>
    [
      series.workloads[entry[4]],
      Object.entries(entry[2])
        .map(([name, value]) => `${name}=${value}`)
        .join(" "),
    ]
      .filter(Boolean)
      .join(" ");
  const unique = (values) => [...new Set(values)];
  const order = index.views.map((of) => JSON.stringify(KEY.map((name) => of[name])));

  // What stands for a row's level: the median, or for compiled figures the one that was asked for.
  const FIGURES = [
    "kernel_cycles",
    "hbm_bytes",
    "vmem_bytes",
    "spill_stores",
    "stall_cycles",
    "rounds",
    "round_trips",
    "lds_bytes",
    "vgpr",
  ];

  const controls = el("form", { class: "controls", "aria-label": "What is shown" });
  controls.addEventListener("submit", (event) => event.preventDefault());
  const content = el("div", { id: "content", "aria-live": "polite" });
  box.replaceChildren(controls, content);
  let turn = 0;

  const hashOf = (place) => index.commits[place][0].slice(0, 10);
  const changeText = (change) =>
    `${change.ratio === null ? "from zero" : `${k3.number(change.ratio)}x`} since ${hashOf(change.after)}, ${change.worse ? "worse" : "better"}${change.other_environment ? ", in another environment" : ""}`;
  const value = (document_, name, row) =>
    name in document_.constant ? document_.constant[name] : document_.columns[name][row];
  const levels = (document_, figure) =>
    Array.from({ length: document_.rows }, (_, row) => {
      if (figure === "median") {
        const median = value(document_, "median_s", row);
        return median === null ? null : median * 1e3;
      }
      return value(document_, "figures", row)?.[figure] ?? null;
    });

  const draw = (documents, figure, heading, about) => {
    const unit = figure === "median" ? "ms a call" : figure;
    const lines = documents.map(({ number, document: document_ }) => {
      const places = document_.columns.commit;
      return {
        number,
        document: document_,
        name: document_.implementation,
        look: looks.get(document_.implementation),
        level: levels(document_, figure),
        places,
      };
    });
    const places = unique(lines.flatMap((line) => line.places))
      .filter((place) => place !== null)
      .sort((a, b) => a - b);
    const at = new Map(places.map((place, position) => [place, position]));
    const hash = (place) => index.commits[place][0].slice(0, 8);
    const metric = figure === "median" ? "time_s" : figure;
    const changesOf = (line) =>
      (line.document.changes || []).filter((change) => change.metric === metric);
    const changes = lines.flatMap((line) =>
      changesOf(line).map((change) => ({ line, row: change.row, change })),
    );
    const looked = lines.some((line) => line.document.changes !== null);
    const rows = lines
      .flatMap((line) =>
        line.places.map((place, row) => ({
          commit_hash: index.commits[place][0],
          subject: index.commits[place][1],
          date: index.commits[place][2],
          kind: line.document.kind,
          device: line.document.device,
          implementation: line.name,
          level: line.level[row],
          p10: figure === "median" ? scaled(line, "p10_s", row) : null,
          p90: figure === "median" ? scaled(line, "p90_s", row) : null,
          n: value(line.document, "n", row),
          correctness: value(line.document, "correctness_status", row),
          change: changesOf(line)
            .filter((change) => change.row === row)
            .map(changeText)
            .join("; "),
          id: value(line.document, "id", row),
        })),
      )
      .reverse();
    const chart = (width) => {
      const data = lines.flatMap((line) => {
        const x = line.places.map((place) => at.get(place));
        const [low, high] = ["p10_s", "p90_s"].map((name) =>
          line.places.map((_, row) => scaled(line, name, row)),
        );
        const banded =
          figure === "median"
            ? x.map((_, row) => row).filter((row) => low[row] !== null && high[row] !== null)
            : [];
        const text = line.places.map((place, row) =>
          theme.label(
            `${line.name} at ${hash(place)}: ${k3.number(line.level[row])} ${unit}; ${k3.short(index.commits[place][1], 70)}`,
            200,
          ),
        );
        return [
          ...(banded.length > 1
            ? [
                {
                  type: "scatter",
                  mode: "lines",
                  fill: "toself",
                  hoverinfo: "skip",
                  showlegend: false,
                  legendgroup: `line ${line.name}`,
                  line: { width: 0 },
                  fillcolor: theme.translucent(line.look.colour, 0.2),
                  x: [...banded.map((row) => x[row]), ...banded.map((row) => x[row]).reverse()],
                  y: [
                    ...banded.map((row) => low[row]),
                    ...banded.map((row) => high[row]).reverse(),
                  ],
                },
              ]
            : []),
          {
            type: "scatter",
            mode: places.length > 150 ? "lines" : "lines+markers",
            name: theme.label(line.name),
            legendgroup: `line ${line.name}`,
            x,
            y: line.level,
            hoverinfo: "text",
            hovertext: text,
            customdata: line.places.map((_, row) => value(line.document, "id", row)),
            line: { color: line.look.colour, dash: line.look.dash, width: 1.8 },
            marker: { color: line.look.colour, symbol: line.look.mark, size: 6 },
            connectgaps: false,
          },
        ];
      });
      if (changes.length) {
        data.push({
          type: "scatter",
          mode: "markers",
          name: "change point",
          x: changes.map(({ line, row }) => at.get(line.places[row])),
          y: changes.map(({ line, row }) => line.level[row]),
          hoverinfo: "text",
          hovertext: changes.map(({ line, row, change }) =>
            theme.label(
              `${line.name}: ${changeText(change)}: ${k3.short(index.commits[line.places[row]][1], 80)}`,
              240,
            ),
          ),
          customdata: changes.map(({ line, row }) => value(line.document, "id", row)),
          marker: {
            symbol: "circle-open",
            size: 15,
            color: theme.css("--ink"),
            line: { width: 2 },
          },
        });
      }
      const ticks = Math.max(2, Math.floor(width / 95));
      const every = Math.max(1, Math.ceil(places.length / ticks));
      const shown = places
        .map((_, position) => position)
        .filter((position) => position % every === 0);
      const legendRows = Math.ceil(
        (data.filter((trace) => trace.showlegend !== false).length * 130) / Math.max(width, 280),
      );
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
            title: "commit, oldest first",
            tickvals: shown,
            ticktext: shown.map((position) => hash(places[position])),
            range: [-0.5, places.length - 0.5],
          }),
          yaxis: theme.axis({ title: unit, rangemode: "tozero" }),
          shapes: unique(changes.map(({ line, row }) => at.get(line.places[row]))).map((x) => ({
            type: "line",
            xref: "x",
            yref: "paper",
            x0: x - 0.5,
            x1: x - 0.5,
            y0: 0,
            y1: 1,
            line: { color: theme.css("--ink"), width: 1, dash: "dash" },
          })),
        },
      };
    };
    return figures.figure({
      id: "history",
      title: heading,
      about,
      chart,
      rows,
      note: !looked
        ? "No change points: they are looked for in measured and compiled series of at least five commits (two, where compiled)."
        : changes.length
          ? `${changes.length === 1 ? "One change point, a ring" : `${changes.length} change points, rings`} with a dashed line before the commit that changed the level; found as k3bench gate history does.`
          : "No change point was found.",
      columns: [
        { key: "commit_hash", name: "commit" },
        { key: "date", name: "date" },
        { key: "subject", name: "subject" },
        { key: "kind", name: "kind" },
        { key: "device", name: "device" },
        { key: "implementation", name: "implementation" },
        { key: "level", name: figure === "median" ? "median ms" : figure },
        { key: "p10", name: "p10 ms" },
        { key: "p90", name: "p90 ms" },
        { key: "n", name: "n" },
        { key: "correctness", name: "correctness" },
        { key: "change", name: "change point" },
        { key: "id", name: "result" },
      ],
    });
  };
  const scaled = (line, name, row) => {
    const seconds = value(line.document, name, row);
    return seconds === null || seconds === undefined ? null : seconds * 1e3;
  };

  const update = async () => {
    const mine = ++turn;
    const focused = document.activeElement?.id;
    delete document.documentElement.dataset.drawn;
    const views = unique(withCommits.map(({ entry }) => viewKey(entry)))
      .sort((a, b) => order.indexOf(a) - order.indexOf(b))
      .map((key) => [key, viewWords(key)]);
    const chosenView = view.chosen("view", views);
    const inView = withCommits.filter(({ entry }) => viewKey(entry) === chosenView);
    const benchmarks = unique(inView.map(({ entry }) => series.benchmarks[entry[0]]))
      .sort()
      .map((name) => [name, k3.short(name, 60)]);
    const benchmark = view.chosen("benchmark", benchmarks);
    const inBenchmark = inView.filter(({ entry }) => series.benchmarks[entry[0]] === benchmark);
    const points = unique(inBenchmark.map(({ entry }) => pointText(entry)))
      .sort((a, b) => a.localeCompare(b, "en", { numeric: true }))
      .map((text) => [text, k3.short(text, 60)]);
    const point = view.chosen("point", points);
    const mineOf = inBenchmark.filter(({ entry }) => pointText(entry) === point);
    const documents = await Promise.all(
      mineOf.map(async ({ number }) => ({ number, document: await k3.load(`series/${number}`) })),
    );
    if (mine !== turn) return;
    const names = view.order(
      index,
      documents.map(({ document: document_ }) => document_.implementation),
    );
    const implementation = view.chosen("implementation", [
      ["all", "all"],
      ...names.map((name) => [name, name]),
    ]);
    const present = FIGURES.filter((name) =>
      documents.some(({ document: document_ }) =>
        levels(document_, name).some((level) => level !== null),
      ),
    );
    const timed = documents.some(({ document: document_ }) =>
      levels(document_, "median").some((level) => level !== null),
    );
    const quantities = [
      ...(timed ? [["median", "median time"]] : []),
      ...present.map((name) => [name, name]),
    ];
    const quantity = view.chosen(
      "quantity",
      quantities.length ? quantities : [["median", "median time"]],
    );
    const shown = documents
      .filter(
        ({ document: document_ }) =>
          implementation === "all" || document_.implementation === implementation,
      )
      .sort(
        (a, b) =>
          names.indexOf(a.document.implementation) - names.indexOf(b.document.implementation),
      );
    controls.replaceChildren(
      view.select("Figures", "view", views, chosenView, update),
      view.select("Benchmark", "benchmark", benchmarks, benchmark, update),
      view.select("Point", "point", points, point, update),
      view.select(
        "Implementation",
        "implementation",
        [["all", "all"], ...names.map((name) => [name, k3.short(name, 40)])],
        implementation,
        update,
      ),
      view.select("Quantity", "quantity", quantities, quantity, update),
    );
    content.replaceChildren(
      draw(shown, quantity, k3.short(`${benchmark} ${point}`, 90), viewWords(chosenView)),
    );
    if (focused) document.getElementById(focused)?.focus();
    document.documentElement.dataset.drawn = String(mine);
  };
  await update();
});

// One result: samples, percentiles, record, manifest, a manifest diff, and how to measure it again.
"use strict";

k3.start(async (index, series) => {
  const { el } = k3;
  const box = k3.pageBox();

  const whereIs = async (identity) => {
    const prefix = identity.slice(0, index.id_digits);
    if (!index.id_files.includes(prefix)) return null;
    const known = await k3.load(`ids/${prefix}`);
    const found = Object.keys(known).filter((candidate) => candidate.startsWith(identity));
    return found.length === 1
      ? { id: found[0], series: known[found[0]][0], row: known[found[0]][1] }
      : { several: found };
  };

  const find = (text, problem) => {
    const input = el("input", {
      id: "find",
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      value: text,
      placeholder: "32 hex digits, or the first few",
    });
    const form = el(
      "form",
      { class: "controls" },
      el(
        "label",
        { class: "control", for: "find" },
        el("span", {}, "Result id (k3bench results --json prints it; every table links here)"),
        input,
      ),
      el("button", { type: "submit" }, "Open"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      k3.remember("id", input.value.trim());
      k3.remember("other", null);
      show();
    });
    return [form, problem ? el("p", { class: "problem", role: "alert" }, problem) : null].filter(
      Boolean,
    );
  };

  const samplesOf = (text) => {
    const raw = atob(text);
    const packed = new DataView(new ArrayBuffer(raw.length));
    for (let at = 0; at < raw.length; at += 1) packed.setUint8(at, raw.charCodeAt(at));
    return Array.from({ length: raw.length / 8 }, (_, at) => packed.getFloat64(at * 8, true));
  };

  // Linear interpolation between order statistics, as the ledger's median, p10 and p90.
  const percentile = (sorted, percent) => {
    const at = ((sorted.length - 1) * percent) / 100;
    const below = Math.floor(at);
    return below + 1 < sorted.length
      ? sorted[below] + (at - below) * (sorted[below + 1] - sorted[below])
      : sorted[below];
  };

  const sampleFigures = (samples, about, name) => {
    const milli = samples.map((seconds) => seconds * 1e3);
    const sorted = [...milli].sort((a, b) => a - b);
    const look = theme.style(0);
    const inOrder = figures.figure({
      id: "samples",
      title: `Samples of ${name} in the order taken`,
      about,
      height: 280,
      columns: [
        { key: "number", name: "sample", plain: true },
        { key: "seconds", name: "s", plain: true },
      ],
      rows: samples.map((seconds, at) => ({ number: at + 1, seconds })),
      chart: () => ({
        data: [
          {
            type: "scatter",
            mode: "markers",
            x: milli.map((_, at) => at + 1),
            y: milli,
            name: "sample",
            hoverinfo: "x+y",
            marker: { color: look.colour, size: 6 },
          },
          ...[
            [50, "median", "solid"],
            [10, "p10", "dot"],
            [90, "p90", "dash"],
          ].map(([percent, label, dash]) => ({
            type: "scatter",
            mode: "lines",
            name: label,
            x: [0.5, milli.length + 0.5],
            y: [percentile(sorted, percent), percentile(sorted, percent)],
            hoverinfo: "name+y",
            line: { color: theme.css("--ink"), width: 1.2, dash },
          })),
        ],
        layout: {
          ...theme.layout({ margin: { l: 60, r: 12, t: 30, b: 44 } }),
          legendRows: 0,
          xaxis: theme.axis({ title: "sample", range: [0.5, milli.length + 0.5] }),
          yaxis: theme.axis({ title: "ms" }),
        },
      }),
    });
    const percents = [0, 5, 10, 25, 50, 75, 90, 95, 99, 100];
    const spread = figures.figure({
      id: "percentiles",
      title: `Percentiles of ${name}`,
      about,
      height: 280,
      columns: [
        { key: "percent", name: "percentile", plain: true },
        { key: "seconds", name: "s" },
      ],
      rows: percents.map((percent) => ({ percent, seconds: percentile(sorted, percent) / 1e3 })),
      chart: () => ({
        data: [
          {
            type: "scatter",
            mode: "lines",
            x: sorted,
            y: sorted.map((_, at) => (sorted.length > 1 ? (100 * at) / (sorted.length - 1) : 50)),
            name: "samples",
            hoverinfo: "x+y",
            line: { color: look.colour, width: 2 },
          },
          {
            type: "scatter",
            mode: "markers",
            x: percents.map((percent) => percentile(sorted, percent)),
            y: percents,
            name: "percentiles",
            hoverinfo: "x+y",
            marker: { color: theme.css("--ink"), symbol: "diamond", size: 7 },
          },
        ],
        layout: {
          ...theme.layout({ margin: { l: 60, r: 12, t: 30, b: 44 } }),
          legendRows: 0,
          xaxis: theme.axis({ title: "ms" }),
          yaxis: theme.axis({ title: "percentile", range: [-3, 103] }),
        },
      }),
    });
    return [inOrder, spread];
  };

  const pairs = (entries) =>
    el(
      "div",
      { class: "scroll whole", role: "region", tabindex: "0", "aria-label": "Record" },
      el(
        "table",
        {},
        el(
          "tbody",
          {},
          entries.map(([name, value]) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, name),
              el(
                "td",
                {},
                value === null || value === undefined
                  ? ""
                  : value instanceof Node
                    ? value
                    : k3.outside(value),
              ),
            ),
          ),
        ),
      ),
    );

  const command = (label, text, id) => {
    const pre = el("pre", { tabindex: "0", id }, text);
    const done = el("span", { role: "status" });
    const copy = async () => {
      const range = document.createRange();
      range.selectNodeContents(pre);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      let copied = false;
      try {
        await navigator.clipboard.writeText(text);
        copied = true;
      } catch {
        copied = false;
      }
      done.textContent = copied ? " copied" : " selected: copy it with the keyboard";
    };
    return el(
      "div",
      { class: "command" },
      el("p", {}, label),
      pre,
      el("button", { type: "button", onclick: copy }, "Copy"),
      done,
    );
  };

  const show = async () => {
    delete document.documentElement.dataset.drawn;
    const wanted = (k3.state.get("id") || "").toLowerCase();
    if (!wanted) {
      box.replaceChildren(...find("", null));
      document.documentElement.dataset.drawn = "1";
      return;
    }
    const found = /^[0-9a-f]{1,32}$/.test(wanted) ? await whereIs(wanted) : null;
    if (!found || found.several) {
      const problem = found?.several?.length
        ? `${found.several.length} results start with ${wanted}: give more digits.`
        : `No result ${k3.short(wanted, 40)} is in these pages.`;
      box.replaceChildren(...find(wanted, problem));
      document.documentElement.dataset.drawn = "1";
      return;
    }
    const document_ = await k3.load(`series/${found.series}`);
    const value = (name) =>
      name in document_.constant ? document_.constant[name] : document_.columns[name][found.row];
    const place = document_.columns.commit[found.row];
    const commit = place === null ? null : index.commits[place];
    const about = view.about(index, document_, place);
    const name = k3.short(document_.implementation, 40);
    const content = [
      ...find(found.id, null),
      el("h2", {}, k3.outside(k3.short(`${document_.benchmark} ${document_.workload.id}`, 120))),
      el("p", { class: "about" }, about),
    ];

    if (value("n") > 0) {
      const known = place === null || place >= index.commits.length - index.detailed_commits;
      const samples = known ? await k3.load(`samples/${found.series}`) : {};
      if (samples[found.id])
        content.push(...sampleFigures(samplesOf(samples[found.id]), about, name));
      else
        content.push(
          el(
            "p",
            { class: "note" },
            `These pages keep samples for the newest ${index.detailed_commits} commits; the ledger has this one's too: k3bench dashboard --commits ${index.commits.length}`,
          ),
        );
    }
    const manifest = value("manifest_id");
    const seconds = (key) =>
      value(key) === null ? null : `${value(key)} s (${k3.milliseconds(value(key))} ms)`;
    content.push(
      el("h2", {}, "Record"),
      pairs([
        ["id", found.id],
        ["kind", document_.kind],
        ["device", document_.device],
        ["clock", document_.clock],
        ["preset", document_.preset],
        ["benchmark", document_.benchmark],
        ["parameters", JSON.stringify(document_.parameters)],
        ["implementation", document_.implementation],
        ["workload", document_.workload.id],
        ["workload sha256", document_.workload.sha256],
        ["median", seconds("median_s")],
        ["p10", seconds("p10_s")],
        ["p90", seconds("p90_s")],
        ["n", value("n")],
        ["warm-up calls", value("warmup")],
        ["compile time", seconds("compile_s")],
        ["tokens", value("tokens")],
        ["padded tokens", value("padded_tokens")],
        ["tokens/s", value("tokens_per_s")],
        ["correctness", value("correctness_status")],
        ["max abs error", value("max_abs_error")],
        ["tolerance", value("tolerance")],
        ["reference", value("correctness_reference")],
        ["detail", value("correctness_detail")],
        ["commit", commit ? commit[0] : null],
        ["commit subject", commit ? (commit[3] ? commit[1] : "not in this clone") : null],
        ["started at", value("started_at")],
        ["run", value("run_id")],
        ["source", value("source")],
        ["manifest", manifest],
      ]),
    );
    const stated = value("figures");
    if (stated)
      content.push(
        el("h2", {}, "Stated figures"),
        pairs(
          Object.entries(stated).map(([key, figure]) => [
            key,
            typeof figure === "number" ? figure : String(figure),
          ]),
        ),
      );

    content.push(el("h2", {}, "Measure it again"));
    if (document_.asv_command && commit) {
      content.push(
        command(
          "Prints and checks the exact environment and command:",
          `k3bench reproduce ${found.id}`,
          "reproduce",
        ),
        command(
          "The plain asv command:",
          document_.asv_command.replace("'{commit}^!'", `'${commit[0]}^!'`),
          "asv-command",
        ),
      );
    } else content.push(el("p", {}, "A published figure: its source says how it was made."));

    content.push(el("h2", {}, "Manifest"));
    if (!manifest) content.push(el("p", {}, "No environment goes with this kind of figure."));
    else {
      const others = index.manifests.filter(([identity]) => identity !== manifest);
      const options = [
        ["none", "nothing"],
        ...others.map(([identity, summary]) => [
          identity,
          `${identity.slice(0, 10)} ${k3.short(summary, 60)}`,
        ]),
      ];
      const other = view.chosen("other", options);
      content.push(
        view.select("Compare with another manifest", "other", options, other, () =>
          show().then(() => document.getElementById("choose-other").focus()),
        ),
      );
      if (other !== "none") content.push(await environments.diff(manifest, other));
      content.push(
        el(
          "details",
          { id: "manifest", open: other === "none" },
          el("summary", {}, `Manifest ${manifest.slice(0, 10)}`),
          await environments.table(manifest),
        ),
      );
    }
    box.replaceChildren(...content);
    document.documentElement.dataset.drawn = "1";
  };
  addEventListener("hashchange", () => {
    const next = new URLSearchParams(location.hash.slice(1));
    k3.state.forEach((_, key) => k3.state.delete(key));
    next.forEach((text, key) => k3.state.set(key, text));
    show();
  });
  await show();
});

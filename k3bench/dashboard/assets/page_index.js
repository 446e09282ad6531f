// The overview: what there is, by kind, device and commit.
"use strict";

k3.start(async (index) => {
  const { el } = k3;
  const box = k3.pageBox();
  if (!index.views.length) {
    box.replaceChildren(
      k3.nothing(
        "it is empty, or there is none yet",
        "make bench          # measure on this machine\nk3bench ledger seed # only the published figures\nmake dashboard",
      ),
    );
    return;
  }
  const { counts } = index;
  const cell = (text) => el("td", { class: k3.width(text) }, k3.outside(text));
  const kinds = {
    measured: "a clock on the named device",
    compiled: "read from a compiler's output",
    modelled: "computed by a stated model",
    published: "somebody else's figure, with its source",
  };
  const rows = index.views.map((of) => {
    const newest = of.at[0];
    return el(
      "tr",
      {},
      cell(of.kind),
      cell(of.device),
      cell(of.clock || ""),
      cell(of.preset || ""),
      el(
        "td",
        { class: "number" },
        String(of.at.filter((entry) => entry[0] !== null).length || ""),
      ),
      el("td", { class: "number" }, String(newest[2])),
      cell(newest[0] === null ? "" : view.commitWords(index, newest[0])),
    );
  });
  const commits = index.commits
    .slice(-20)
    .reverse()
    .map(([hash, subject, date, known]) =>
      el(
        "tr",
        {},
        cell(hash.slice(0, 10)),
        cell(date),
        known
          ? cell(k3.short(subject, 120))
          : el("td", { class: "text" }, el("em", {}, "not in this clone")),
      ),
    );
  const find = el("input", {
    id: "find",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "32 hex digits, or the first few",
  });
  const form = el(
    "form",
    { class: "controls" },
    el("label", { class: "control", for: "find" }, el("span", {}, "Open a result by its id"), find),
    el("button", { type: "submit" }, "Open"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = `point.html#id=${encodeURIComponent(find.value.trim())}`;
  });
  box.replaceChildren(
    el(
      "p",
      {},
      `${counts.results.toLocaleString("en-US")} results in ${counts.series.toLocaleString("en-US")} series over ${counts.commits.toLocaleString("en-US")} commits, made in ${counts.manifests.toLocaleString("en-US")} environments.`,
    ),
    form,
    el("h2", {}, "Figures by kind and device"),
    el(
      "ul",
      {},
      Object.entries(kinds).map(([kind, meaning]) =>
        el("li", {}, el("strong", {}, kind), `: ${meaning}`),
      ),
    ),
    el("p", {}, "No figure mixes kinds or devices, unless a control names the second one."),
    el(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-label": "Views" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            [
              "kind",
              "device",
              "clock",
              "preset",
              "commits",
              "points at the newest",
              "newest commit",
            ].map((name) => el("th", { scope: "col" }, name)),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
    el("h2", {}, "Newest commits with results"),
    commits.length
      ? el(
          "div",
          { class: "scroll", role: "region", tabindex: "0", "aria-label": "Commits" },
          el(
            "table",
            {},
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["commit", "date", "subject"].map((name) => el("th", { scope: "col" }, name)),
              ),
            ),
            el("tbody", {}, commits),
          ),
        )
      : el("p", {}, "None: only published figures are here."),
    index.commits.length > index.detailed_commits
      ? el(
          "p",
          { class: "note" },
          `Figures and samples are kept for the newest ${index.detailed_commits} commits; the history shows all ${index.commits.length}.`,
        )
      : "",
  );
  document.documentElement.dataset.drawn = "1";
});

// A manifest as a table of its fields, and two of them held against each other.
"use strict";

const environments = (() => {
  const { el } = k3;

  const shownValue = (value) =>
    value === undefined ? "(not there)" : typeof value === "string" ? value : JSON.stringify(value);

  const table = async (identity) => {
    const leaves = await k3.load(`manifests/${identity}`);
    const filter = el("input", { id: "manifest-filter", type: "text", autocomplete: "off" });
    const body = el("tbody");
    const fill = () => {
      const wanted = filter.value.toLowerCase();
      body.replaceChildren(
        ...leaves
          .filter(
            ([path, value]) =>
              !wanted || `${path} ${shownValue(value)}`.toLowerCase().includes(wanted),
          )
          .map(([path, value, decisive]) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, k3.outside(path)),
              el("td", {}, k3.outside(shownValue(value))),
              el("td", {}, decisive ? "decides" : ""),
            ),
          ),
      );
    };
    filter.addEventListener("input", fill);
    fill();
    return el(
      "div",
      {},
      el(
        "label",
        { class: "control", for: "manifest-filter" },
        el("span", {}, "Only fields that hold"),
        filter,
      ),
      el(
        "div",
        { class: "scroll tall", role: "region", tabindex: "0", "aria-label": "Manifest" },
        el(
          "table",
          {},
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ["field", "value", "comparability"].map((name) => el("th", { scope: "col" }, name)),
            ),
          ),
          body,
        ),
      ),
    );
  };

  const diff = async (mine, other) => {
    const [a, b] = await Promise.all([k3.load(`manifests/${mine}`), k3.load(`manifests/${other}`)]);
    const [left, right] = [
      new Map(a.map((leaf) => [leaf[0], leaf])),
      new Map(b.map((leaf) => [leaf[0], leaf])),
    ];
    const differing = [...new Set([...left.keys(), ...right.keys()])]
      .map((path) => ({ path, left: left.get(path), right: right.get(path) }))
      .filter(
        (pair) =>
          !pair.left ||
          !pair.right ||
          JSON.stringify(pair.left[1]) !== JSON.stringify(pair.right[1]),
      )
      .map((pair) => ({
        ...pair,
        decisive: (pair.left || pair.right)[2],
        why: (pair.left || pair.right)[3],
      }))
      .sort((x, y) => y.decisive - x.decisive || x.path.localeCompare(y.path));
    const deciding = differing.filter((pair) => pair.decisive).length;
    return el(
      "div",
      { id: "diff" },
      el(
        "p",
        { class: deciding ? "problem" : "good" },
        deciding
          ? `Not comparable: ${deciding} of ${differing.length} differences are part of the environment that is measured.`
          : `Comparable: ${differing.length} differences, none of which decides.`,
      ),
      differing.length
        ? el(
            "div",
            { class: "scroll tall", role: "region", tabindex: "0", "aria-label": "Differences" },
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
                    "field",
                    `this (${mine.slice(0, 10)})`,
                    `other (${other.slice(0, 10)})`,
                    "why",
                  ].map((name) => el("th", { scope: "col" }, name)),
                ),
              ),
              el(
                "tbody",
                {},
                differing.map((pair) =>
                  el(
                    "tr",
                    { class: pair.decisive ? "decides" : null },
                    el("th", { scope: "row" }, k3.outside(pair.path)),
                    el("td", {}, k3.outside(shownValue(pair.left?.[1]))),
                    el("td", {}, k3.outside(shownValue(pair.right?.[1]))),
                    el("td", {}, pair.why),
                  ),
                ),
              ),
            ),
          )
        : null,
    );
  };

  return { table, diff };
})();

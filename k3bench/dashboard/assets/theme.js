// Colours, marks and fonts of the charts: told apart without colour, light and dark.
"use strict";

const theme = (() => {
  // Okabe and Ito's colours; yellow is left to last, it is weak on white.
  const COLOURS = [
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#999999",
    "#F0E442",
  ];
  const MARKS = [
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "x",
    "star",
    "cross",
    "triangle-down",
    "hourglass",
  ];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const PATTERNS = ["", "/", "x", ".", "\\", "-", "|", "+"];

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const style = (number) => ({
    colour: COLOURS[number % COLOURS.length],
    mark: MARKS[number % MARKS.length],
    dash: DASHES[number % DASHES.length],
    pattern: PATTERNS[number % PATTERNS.length],
  });
  const translucent = (colour, share) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${share})`;
  };

  // plotly reads tags, entities and $formulas$ in texts, and obeys marks of writing direction: both are taken
  // out of whatever comes from outside.
  const label = (text, most = 32) =>
    k3
      .short(
        String(text).replace(/[\u0000-\u001f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, " "),
        most,
      )
      .replace(/&/g, "&amp;")
      .replace(/</g, "&lt;")
      .replace(/>/g, "&gt;")
      .replace(/\$/g, "&#36;");

  const axis = (extra = {}) => ({
    gridcolor: css("--grid"),
    linecolor: css("--rule"),
    tickcolor: css("--rule"),
    zeroline: false,
    showline: true,
    ticks: "outside",
    ticklen: 3,
    automargin: true,
    ...extra,
    title: { text: extra.title || "", font: { size: 12 }, standoff: 6 },
  });

  // A log axis over these values, with ticks that carry whole numbers: 2, 5, 10, 20.
  const logAxis = (values, extra = {}) => {
    const known = values.filter((value) => value > 0);
    if (!known.length) return axis({ type: "log", ...extra });
    const [low, high] = [Math.min(...known) / 1.15, Math.max(...known) * 1.15];
    const ticks = (steps) => {
      const found = [];
      for (
        let power = Math.floor(Math.log10(low));
        power <= Math.ceil(Math.log10(high));
        power += 1
      ) {
        for (const step of steps) found.push(Number(`${step}e${power}`));
      }
      return found.filter((value) => value >= low && value <= high);
    };
    const choices = [
      [1],
      [1, 3],
      [1, 2, 5],
      [1, 1.5, 2, 3, 5, 7],
      [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9],
    ].map(ticks);
    const tickvals = choices.find((found) => found.length >= 3) || choices[choices.length - 1];
    const ticktext = tickvals.map((value) =>
      value.toLocaleString("en-US", { maximumSignificantDigits: 3 }),
    );
    return axis({
      type: "log",
      range: [Math.log10(low), Math.log10(high)],
      tickvals,
      ticktext,
      ...extra,
    });
  };

  // The fill of a bar: a pattern over the colour, for readers who see no colour.
  const bar = (look) => ({
    color: look.colour,
    line: { color: css("--surface"), width: 0.5 },
    pattern: {
      shape: look.pattern,
      fillmode: "overlay",
      fgcolor: "rgba(0,0,0,0.55)",
      size: 6,
      solidity: 0.2,
    },
  });

  const layout = (extra = {}) => ({
    paper_bgcolor: css("--surface"),
    plot_bgcolor: css("--surface"),
    font: { family: "system-ui, sans-serif", size: 12, color: css("--ink") },
    margin: { l: 56, r: 12, t: 24, b: 44 },
    hoverlabel: { align: "left" },
    legend: { orientation: "h", yanchor: "bottom", y: 1.02, x: 0, xanchor: "left" },
    dragmode: false,
    autosize: true,
    ...extra,
  });

  return { COLOURS, css, style, translucent, label, axis, logAxis, bar, layout };
})();

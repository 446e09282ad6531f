// What every page needs: building elements from text, loading data files, state in the address.
"use strict";

const k3 = (() => {
  const waiting = new Map();
  const loaded = new Map();

  // Called by every data file with its name and its JSON as a text.
  window.k3data = (name, text) => {
    const entry = waiting.get(name);
    waiting.delete(name);
    if (entry) entry.resolve(JSON.parse(text));
  };

  // A script element, not fetch: pages opened from a disk may not fetch.
  const load = (name) => {
    if (!loaded.has(name)) {
      loaded.set(
        name,
        new Promise((resolve, reject) => {
          waiting.set(name, { resolve });
          const script = document.createElement("script");
          script.src = `data/${name}.js`;
          script.onerror = () =>
            reject(new Error(`data file ${name} is missing: build the pages again`));
          script.onload = () => {
            script.remove();
            if (waiting.has(name))
              reject(new Error(`data file ${name} is damaged: build the pages again`));
          };
          document.head.append(script);
        }),
      );
    }
    return loaded.get(name);
  };

  // The only way that this site makes elements. Strings become text nodes, never markup.
  const el = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  };

  // A name from outside: its direction of writing must not reach into its neighbours.
  const outside = (text) => el("bdi", {}, String(text));

  const state = new URLSearchParams(location.hash.slice(1));
  const remember = (name, value) => {
    if (value === null || value === undefined || value === "") state.delete(name);
    else state.set(name, value);
    history.replaceState(null, "", `#${state}`);
  };

  const milliseconds = (seconds) =>
    seconds === null || seconds === undefined ? "" : number(seconds * 1e3);

  // Four significant digits, never an exponent.
  const number = (value) => {
    if (value === null || value === undefined) return "";
    if (!Number.isFinite(value)) return String(value);
    if (value === 0) return "0";
    const decimals = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
    return value.toLocaleString("en-US", {
      minimumFractionDigits: Math.min(decimals, 12),
      maximumFractionDigits: Math.min(decimals, 12),
    });
  };

  const bytes = (value) => {
    if (value === null || value === undefined) return "";
    const units = ["B", "kB", "MB", "GB", "TB"];
    const unit = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(value) / 3)));
    return `${number(value / 10 ** (3 * unit))} ${units[unit]}`;
  };

  // Tokens as the literature names contexts: 4K, 512K; 1M for what a 1M context leaves.
  const tokens = (count) => {
    if (typeof count !== "number") return String(count);
    if (count >= 1e6) return `${Math.round(count / 2 ** 20)}M`;
    return count >= 1024 && count % 1024 === 0 ? `${count / 1024}K` : String(count);
  };

  const short = (text, most = 32) => {
    const characters = Array.from(String(text));
    return characters.length <= most
      ? characters.join("")
      : `${characters.slice(0, most - 3).join("")}...`;
  };

  // The class of a table's cell: short texts keep their line, long ones break anywhere.
  const width = (value) => (String(value ?? "").length > 30 ? "long" : "text");

  const status = (text) => {
    const place = document.getElementById("status");
    if (place) place.textContent = text;
  };

  const pageBox = () => document.getElementById("page");

  // Runs a page; whatever it cannot do is said on the page.
  const start = async (page) => {
    try {
      const [index, series] = await Promise.all([load("index"), load("series")]);
      await page(index, series);
      document.documentElement.dataset.drawn ??= "1";
    } catch (error) {
      pageBox().replaceChildren(el("p", { class: "problem", role: "alert" }, error.message));
      document.documentElement.dataset.drawn = "failed";
      throw error;
    }
  };

  const nothing = (what, command) =>
    el(
      "div",
      { class: "empty" },
      el("p", {}, `The ledger holds nothing to show here: ${what}. To make some:`),
      el("pre", { tabindex: "0" }, command),
    );

  return {
    load,
    el,
    outside,
    state,
    remember,
    number,
    milliseconds,
    tokens,
    bytes,
    short,
    width,
    status,
    pageBox,
    start,
    nothing,
  };
})();

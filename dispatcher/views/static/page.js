// What pages do with JavaScript: they refresh themselves, tables sort, keys work. Every page works without it.
"use strict";
(() => {
  const REFRESH = 2000, SLOWEST = 30000, SILENCE = 15000;
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const pause = document.getElementById("pause"), keys = document.getElementById("keys"), away = document.getElementById("away");
  const home = document.querySelector(".home").href;
  let isPaused = sessionStorage.getItem("paused") === "true", pauseMs = REFRESH, lastKey = "";
  let shownAt = Date.now(), awaySince = null;
  const sorted = new Map(); // place of the table on the page -> [column, direction]

  function showPause() {
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
  }

  function togglePause() {
    isPaused = !isPaused;
    sessionStorage.setItem("paused", String(isPaused));
    showPause();
  }

  // A page that is not seen, or in which somebody types or marks text, is left alone.
  function isLeftAlone() {
    const chosen = document.getSelection();
    const typed = document.activeElement && document.activeElement.matches("main input, main select, main textarea");
    return isPaused || document.hidden || typed || keys.open || (chosen && !chosen.isCollapsed);
  }

  async function refresh() {
    if (!isLeftAlone()) {
      const fault = await ask();
      pauseMs = fault ? Math.min(2 * pauseMs, SLOWEST) : REFRESH;
      tellAway(fault);
    }
    setTimeout(refresh, pauseMs);
  }

  // Returns what is wrong with the dispatcher; empty: nothing is.
  async function ask() {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(SILENCE) });
      const text = await answer.text();
      if (String(answer.status) !== document.querySelector("main").dataset.status && !answer.ok) return `answers with status ${answer.status} instead of this page`;
      if (!isLeftAlone()) show(text); // somebody may have paused meanwhile
      return "";
    } catch {
      return "does not answer";
    }
  }

  // A banner that stays where it is, wherever the page is scrolled to. It is read aloud once, so its words do not change.
  function tellAway(fault) {
    awaySince = fault ? awaySince ?? new Date(serverTime()) : null;
    const told = fault && `✕ The dispatcher ${fault} since ${awaySince.toISOString().slice(11, 19)} UTC. This page is not refreshed meanwhile, and its numbers may be wrong.`;
    if (away.textContent !== told) away.textContent = told;
    document.body.classList.toggle("away", Boolean(fault));
  }

  // The clock of the server, by its time at the last answer.
  function serverTime() {
    return Date.parse(document.querySelector("main").dataset.now) + Date.now() - shownAt;
  }

  function tick() {
    const age = document.querySelector(".age time");
    age.textContent = relative((serverTime() - Date.parse(age.dateTime)) / 1000);
  }

  function relative(seconds) {
    if (Math.abs(seconds) < 1) return "now";
    let left = Math.round(Math.abs(seconds));
    const first = UNITS.findIndex(([size]) => left >= size), parts = [];
    for (const [size, unit] of UNITS.slice(first, first + 2)) {
      if (left >= size) parts.push(`${Math.floor(left / size).toLocaleString("en")} ${unit}`);
      left %= size;
    }
    return seconds > 0 ? `${parts.join(" ")} ago` : `in ${parts.join(" ")}`;
  }

  function show(text) {
    const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    const main = document.querySelector("main");
    if (!next) return;
    [main.dataset.now, main.dataset.status, shownAt] = [next.dataset.now, next.dataset.status, Date.now()];
    if (next.innerHTML === main.dataset.told) return tick();
    const open = [...main.querySelectorAll("details")].map((one) => one.open);
    const scrolled = [...main.querySelectorAll(".wide, pre")].map((one) => [one.scrollLeft, one.scrollTop]);
    const focused = pathTo(document.activeElement, main);
    main.dataset.told = next.innerHTML;
    main.replaceChildren(...next.childNodes);
    main.querySelectorAll("details").forEach((one, at) => { if (at in open) one.open = open[at]; });
    prepareTables();
    main.querySelectorAll(".wide, pre").forEach((one, at) => { if (at in scrolled) [one.scrollLeft, one.scrollTop] = scrolled[at]; });
    if (focused) focused.reduce((one, at) => one && one.children[at], main)?.focus({ preventScroll: true });
  }

  // The places of an element below another one, so that its successor can be found.
  function pathTo(element, top) {
    const path = [];
    for (let one = element; one && one !== top; one = one.parentElement) {
      if (!one.parentElement) return null;
      path.unshift([...one.parentElement.children].indexOf(one));
    }
    return element && path.length ? path : null;
  }

  function prepareTables() {
    document.querySelectorAll("table[data-sortable]").forEach((table, at) => {
      table.querySelectorAll("thead th").forEach((head, column) => {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        head.append(button);
        head.setAttribute("aria-sort", "none");
        button.addEventListener("click", () => {
          const [before, direction] = sorted.get(at) ?? [];
          sorted.set(at, [column, before === column ? -direction : 1]);
          sort(table, at);
        });
      });
      sort(table, at);
    });
  }

  function valueOf(row, column) {
    const cell = row.cells[column], text = (cell.dataset.value ?? cell.textContent).trim();
    const number = Number(text.replaceAll(",", "").replace(/%$/, ""));
    return text !== "" && !Number.isNaN(number) ? number : text;
  }

  function compare(a, b) {
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(table, at) {
    if (!sorted.has(at)) return;
    const [column, direction] = sorted.get(at), body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
    rows.sort((a, b) => direction * compare(a[0], b[0]));
    body.append(...rows.map(([, row]) => row));
    table.querySelectorAll("thead th").forEach((head, place) => {
      head.setAttribute("aria-sort", place !== column ? "none" : direction > 0 ? "ascending" : "descending");
    });
  }

  const PLACES = { o: "", t: "tasks", b: "batches", f: "failures", n: "nodes", a: "about" };

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    if (lastKey === "g" && event.key in PLACES) location.href = home + PLACES[event.key];
    else if (event.key === "/") { event.preventDefault(); document.getElementById("search").focus(); }
    else if (event.key === "?") keys.showModal();
    else if (event.key === "p") togglePause();
    lastKey = event.key;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard?.writeText(document.getElementById(button.dataset.copy).textContent);
  });
  document.addEventListener("keydown", onKey);
  pause.addEventListener("click", togglePause);
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  document.getElementById("live").classList.add("ready");
  showPause();
  prepareTables();
  setInterval(tick, 1000);
  setTimeout(refresh, REFRESH);
})();

// The item table of the report page, and the page of each item.  It reads the JSON of the page and
// makes elements of text: nothing from the data is ever read as HTML, and nothing is fetched.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("item-data").textContent);
  const FIRST = 60, MORE = 120, NOTHING = "–";
  const at = (id) => document.getElementById(id);
  const ids = data.columns[0].words;
  const collator = new Intl.Collator("en", { numeric: true });

  // --- elements ---

  function make(tag, text, attributes) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    for (const name in attributes || {}) made.setAttribute(name, attributes[name]);
    return made;
  }

  // the parser knows the namespace of these
  const shapes = make("template");
  shapes.innerHTML = "<svg><g></g><path></path><text></text><circle></circle></svg>";
  function shape(tag, attributes, text) {
    const made = shapes.content.querySelector(tag).cloneNode(false);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // --- numbers as the rest of the page writes them ---

  function number(value, digits) {
    if (value === null || value === undefined) return NOTHING;
    if (typeof value === "string") return value;
    let text = value.toFixed(digits);
    if (!/[1-9]/.test(text)) text = text.replace("-", "");
    const [whole, rest] = text.split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return rest === undefined ? grouped : grouped + "." + rest;
  }
  function withError(value, error, digits) {
    const known = typeof value === "number" && typeof error === "number";
    return known ? number(value, digits) + " ± " + number(error, digits) : number(value, digits);
  }
  function statistic(value) {
    if (typeof value !== "number") return value === null ? NOTHING : String(value);
    if (Number.isInteger(value)) return number(value, 0);
    if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
    return number(value, 3);
  }
  function cell(column, j) {
    if (column.words) return column.words[j];
    const value = column.values[j], error = column.errors ? column.errors[j] : null;
    if (!Array.isArray(value)) return withError(value, error, column.digits);
    const steps = [];
    value.forEach((v, k) => {
      if (v !== null) steps.push(k + 1 + ": " + withError(v, error && error[k], column.digits));
    });
    return steps.length > 1 ? steps.join("\n") : NOTHING;
  }

  // --- which items, in which order ---

  let order = ids.map((_, j) => j), shown = order, sorted = -1, descending = false, drawn = 0;
  const flagsOf = (j) => data.flags[j].map(([flag]) => flag);
  const isFlagged = (j) => flagsOf(j).some((flag) => !data.once.includes(flag));
  const hasFlags = data.flags.some((flags) => flags.length);
  const flagged = { name: "flags", words: ids.map((_, j) => flagsOf(j).join(", ")), csv: {} };
  const columns = hasFlags ? [...data.columns, flagged] : data.columns;

  function key(column, j) {
    let value = column.words ? column.words[j] : column.values[j];
    if (Array.isArray(value)) value = value.find((v) => v !== null);
    if (column.words) return value === "" ? null : value;
    if (value === "∞") return Infinity;
    if (value === "-∞") return -Infinity;
    return value === undefined ? null : value;
  }
  function sortBy(k) {
    descending = sorted === k ? !descending : false;
    sorted = k;
    const keys = ids.map((_, j) => key(columns[k], j)), words = Boolean(columns[k].words);
    order = ids.map((_, j) => j).sort((i, j) => {
      const x = keys[i], y = keys[j];
      if (x === null || y === null) return (x === null) - (y === null) || i - j;
      const by = words ? collator.compare(x, y) : x < y ? -1 : x > y ? 1 : 0;
      return (descending ? -by : by) || i - j;
    });
    heads.forEach((th, n) => th.setAttribute("aria-sort",
      n === k ? (descending ? "descending" : "ascending") : "none"));
    choose();
  }
  function choose() {
    const sought = at("item-search").value.trim().toLowerCase(), flag = at("item-filter").value;
    shown = order.filter((j) => {
      if (flag === "any" ? !isFlagged(j) : flag === "none" ? isFlagged(j)
        : flag && !flagsOf(j).includes(flag.slice(1))) return false;
      return !sought || ids[j].toLowerCase().includes(sought);
    });
    at("item-count").textContent = number(shown.length, 0) + " of " + number(ids.length, 0) + " items";
    body.replaceChildren();
    drawn = 0;
    table.setAttribute("aria-rowcount", shown.length + 1);
    draw(FIRST);
    frame.scrollTop = 0;
  }

  // --- the table: rows are made as they are scrolled to ---

  const frame = at("item-table"), table = frame.querySelector("table"), heads = [];
  const body = table.tBodies[0];

  function header() {
    const row = make("tr");
    columns.forEach((column, k) => {
      const th = make("th", null, { scope: "col", "aria-sort": "none" });
      if (column === flagged) th.className = "words";
      const button = make("button", column.name, { type: "button" });
      button.addEventListener("click", () => sortBy(k));
      th.append(button);
      row.append(th);
      heads.push(th);
      if (k === 0 && data.curve) row.append(make("th", "curve", { scope: "col", class: "words" }));
    });
    table.tHead.replaceChildren(row);
  }
  function line(values, x, y) {
    let path = "", pen = "M";
    values.forEach((v, k) => {
      if (v === null) { pen = "M"; return; }
      path += pen + x(k).toFixed(1) + " " + y(v).toFixed(1);
      pen = "L";
    });
    return path;
  }
  function spark(j) {
    const curve = data.curve[j], svg = shape("svg",
      { class: "spark", viewBox: "0 0 68 24", "aria-hidden": "true" });
    const d = line(curve, (k) => 2 + (64 * k) / (curve.length - 1), (v) => 22 - (20 * v) / 1000);
    svg.append(shape("path", { class: "grid", d: "M2 22.5H66" }), shape("path", { class: "curve", d }));
    return svg;
  }
  function row(j, n) {
    const tr = make("tr", null, { "aria-rowindex": n + 2 });
    columns.forEach((column, k) => {
      if (k) {
        tr.append(make("td", cell(column, j), column.words ? { class: "words" } : {}));
        return;
      }
      const th = make("th", null, { scope: "row" });
      const button = make("button", ids[j], { type: "button", "aria-haspopup": "dialog" });
      button.addEventListener("click", () => open(j));
      th.append(button);
      tr.append(th);
      if (data.curve) {
        const td = make("td");
        td.append(spark(j));
        tr.append(td);
      }
    });
    return tr;
  }
  function draw(n) {
    const some = document.createDocumentFragment(), end = Math.min(shown.length, drawn + n);
    for (; drawn < end; drawn++) some.append(row(shown[drawn], drawn));
    body.append(some);
    at("item-more").hidden = drawn === shown.length;
  }
  function rest() { draw(shown.length); }

  // --- the page of an item ---

  const panel = at("item-panel");
  let current = -1, opener = null;

  // A table; with the name of a file there is a button below that writes it.
  function listed(head, rows, caption, { words, file } = {}) {
    const made = make("table"), top = make("tr"), below = make("tbody");
    made.append(make("caption", caption));
    head.forEach((name) => top.append(make("th", name, { scope: "col" })));
    const thead = make("thead");
    thead.append(top);
    rows.forEach((cells) => {
      const tr = make("tr");
      cells.forEach((c, k) => tr.append(k ? make("td", c, k === words ? { class: "words" } : {})
        : make("th", c, { scope: "row" })));
      below.append(tr);
    });
    made.append(thead, below);
    const around = make("div", null, { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" });
    around.append(made);
    if (!file) return around;
    const both = make("div"), button = make("button", "CSV of this table", { type: "button", class: "csv" });
    button.addEventListener("click", () => save(file,
      lines([head.map((name) => plain(name)), ...rows.map((cells) => cells.map(plain))])));
    both.append(around, button);
    return both;
  }
  const share = (v) => (v === null || v === undefined ? NOTHING : number(v / 1000, 3));
  function between(v, half, sign) {
    return v === null || !half ? null : Math.min(1000, Math.max(0, v + sign * half));
  }
  function observedOf(j) {
    return data.observed ? data.observed.groups.map((g) => ({ label: g.label, values: g.values[j] })) : [];
  }
  const GLYPHS = ["○", "■", "▲", "◆", "●", "□"];

  // Axes from lo to hi, and the places of these and of shares on them.
  function frameOf(label, lo, hi, words) {
    const W = 620, H = 330, left = 44, right = 12, top = 12, bottom = 40;
    const px = (a) => left + ((W - left - right) * (a - lo)) / (hi - lo);
    const py = (v) => top + (H - top - bottom) * (1 - v / 1000);
    const svg = shape("svg", { class: "plot", viewBox: "0 0 " + W + " " + H, role: "img", "aria-label": label });
    for (let t = Math.ceil(lo); t <= hi; t++) {
      svg.append(shape("path", { class: "grid", d: "M" + px(t) + " " + top + "V" + (H - bottom) }),
        shape("text", { x: px(t), y: H - bottom + 16, "text-anchor": "middle" }, String(t)));
    }
    for (const v of [0, 250, 500, 750, 1000]) {
      svg.append(shape("path", { class: "grid", d: "M" + left + " " + py(v) + "H" + (W - right) }),
        shape("text", { x: left - 6, y: py(v) + 4, "text-anchor": "end" }, number(v / 1000, 2)));
    }
    svg.append(shape("text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, words));
    const inside = (at) => Math.min(Math.max(at, left + 8), W - right - 8);
    return { svg, px, py, inside };
  }
  function byAbility(label) {
    const made = frameOf(label, data.ability[0], data.ability[data.ability.length - 1], "ability θ");
    return { ...made, x: (k) => made.px(data.ability[k]) };
  }
  function plotScore(j) {
    const { svg, px, py, x } = byAbility(spoken(j)), curve = data.curve[j], band = data.band && data.band[j];
    if (band && band.every((v) => v !== null)) {
      const up = line(curve.map((v, k) => between(v, band[k], 1)), x, py);
      const ks = curve.map((_, k) => curve.length - 1 - k);
      const down = line(ks.map((k) => between(curve[k], band[k], -1)), (n) => x(ks[n]), py);
      if (up && down) svg.append(shape("path", { class: "around", d: up + "L" + down.slice(1) + "Z" }));
    }
    svg.append(shape("path", { class: "curve", d: line(curve, x, py) }));
    observedOf(j).forEach((g, n) => g.values.forEach((v, k) => {
      const a = data.observed.ability[k];
      if (v === null || a < data.ability[0] || a > data.ability[data.ability.length - 1]) return;
      if (!n) svg.append(shape("circle", { class: "seen", cx: px(a), cy: py(v), r: 3.4 }));
      else svg.append(shape("text", { x: px(a), y: py(v) + 4, "text-anchor": "middle",
        style: "fill:" + colour(n + 1) }, GLYPHS[n % GLYPHS.length]));
    }));
    return svg;
  }
  function plotCategories(j, categories) {
    const { svg, py, x, inside } = byAbility("Probability of each category of item " + ids[j] +
      " by ability. The table below has the numbers.");
    categories.forEach((values, k) => {
      svg.append(shape("path", { class: "curve", d: line(values, x, py), style: "stroke:" + colour(k),
        "stroke-dasharray": DASHES[k % 4] }));
      const best = values.indexOf(Math.max(...values));
      svg.append(shape("text", { x: inside(x(best)), y: Math.max(py(values[best]) - 5, 10),
        "text-anchor": "middle", style: "font-weight:600" }, String(k)));
    });
    return svg;
  }
  const colour = (k) => ["var(--curve)", "var(--seen)", "#1f9e77", "#b868a0", "var(--warn)"][k % 5];
  function spoken(j) {
    const what = data.highest[j] > 1 ? "Expected score as a share of the highest" : "Probability of a right response";
    const points = [0, 8, 16, 24, 32].map((k) => share(data.curve[j][k]) + " at " + data.ability[k]);
    return what + " of item " + ids[j] + " by ability: " + points.join(", ") + ". The table below has the numbers.";
  }
  function legend(j) {
    const groups = observedOf(j);
    let text = data.highest[j] > 1 ? "Expected score as a share of the highest (line)." :
      "Probability of a right response (line).";
    if (data.band && data.band[j].every((v) => v !== null))
      text += " Shaded: band of 95% from the errors of the item's parameters.";
    if (groups.length) {
      const named = groups.map((g, n) => GLYPHS[n % GLYPHS.length] + " " + g.label).join(", ");
      text += " Points: observed" + (groups.length > 1 ? " (" + named + ")" : "") + ", responses counted at " +
        "each ability by what all of a person's responses say of it. The item's own response is among " +
        "these and draws the points to the line, the more the shorter the test.";
    }
    return text;
  }
  function pictured(svg, caption) {
    const figure = make("figure");
    figure.append(svg, make("figcaption", caption));
    return figure;
  }
  function numbers(j) {
    const categories = data.categories && data.categories[j], band = data.band && data.band[j];
    const head = ["ability", "model"], rows = [];
    if (band) head.push("band from", "to");
    if (categories) categories.forEach((_, k) => head.push("P(" + k + ")"));
    for (let k = 0; k < data.ability.length; k += 2) {
      const v = data.curve[j][k], cells = [number(data.ability[k], 1), share(v)];
      if (band) cells.push(share(between(v, band[k], -1)), share(between(v, band[k], 1)));
      if (categories) categories.forEach((values) => cells.push(share(values[k])));
      rows.push(cells);
    }
    const details = make("details");
    details.append(make("summary", "The numbers of the curve"), 
      listed(head, rows, "Curve of item " + ids[j], { file: fileOf("curve", j) }));
    const groups = observedOf(j);
    if (groups.length) {
      const seenRows = data.observed.ability.map((a, k) =>
        [number(a, 2), ...groups.map((g) => share(g.values[k]))]);
      details.append(listed(["ability", ...groups.map((g) => g.label)], seenRows,
        "Observed, as a share of the highest score", { file: fileOf("observed", j) }));
    }
    return details;
  }
  // Options of a multiple-choice item: who chose them, the weakest fifth of the persons to the ablest.
  const DASHES = ["none", "7 3", "2 3", "9 3 2 3"];
  function plotOptions(j, of) {
    const { svg, px, py, inside } = frameOf("Share of each fifth of the persons that chose each option of item " +
      ids[j] + ". The table below has the numbers.", 0.8, 5.2, "fifth of the persons, by their other answers");
    const ends = [];
    of.curve.forEach((values, c) => {
      const right = c === of.key;
      svg.append(shape("path", { class: "curve", d: line(values, (k) => px(k + 1), py),
        style: "stroke:" + colour(c) + ";stroke-width:" + (right ? 4 : 1.8), "stroke-dasharray": DASHES[right ? 0 : c % 4] }));
      const last = values.reduce((found, v, k) => (v === null ? found : k), -1);
      if (last >= 0) ends.push({ c, x: px(last + 1) + 8, y: py(values[last]) + 4 });
    });
    ends.sort((a, b) => b.y - a.y); // from below, names one above the other
    ends.forEach((end, k) => {
      if (k) end.y = Math.min(end.y, ends[k - 1].y - 13);
      svg.append(shape("text", { x: inside(end.x), y: end.y, style: "font-weight:600;fill:" + colour(end.c) }, of.option[end.c]));
    });
    return svg;
  }
  function optionsOf(j, result) {
    const of = result.items[j];
    if (!of) return [make("h4", result.name), make("p", "Nothing is known of this item.", { class: "missing" })];
    const said = of.option.map((name, c) => (c === of.key ? name + " (key)" : name));
    const rows = said.map((name, c) => [name, ...of.columns[c].map(statistic)]);
    const table = listed(["option", ...result.columns.map(([name]) => name)], rows, "Options of item " + ids[j],
      { file: fileOf("options", j) });
    const meaning = make("p", result.columns.map(([name, words]) => name + ": " + words).join("; ") + ".", { class: "remark" });
    const details = make("details"), fifths = [1, 2, 3, 4, 5];
    details.append(make("summary", "The numbers of the picture"), listed(
      ["option", ...fifths.map((k) => "fifth " + k)], said.map((name, c) => [name, ...of.curve[c].map(share)]),
      "Share of each fifth that chose an option of item " + ids[j], { file: fileOf("fifths", j) }));
    return [make("h4", result.name), table, meaning, pictured(plotOptions(j, of),
      "Share that chose each option, of the weakest fifth of the persons to the ablest. The key, the thick line, should " +
      "rise, and every other option fall."), details];
  }
  function content(j) {
    const all = [];
    data.flags[j].forEach(([flag, by]) => {
      const [words, remedy] = data.words[flag] || ["", ""];
      all.push(make("p", flag + " (" + by.join(", ") + "): " + words + ". To do: " + remedy + ".", { class: "caution" }));
    });
    if (data.curve && data.curve[j].some((v) => v !== null)) {
      all.push(pictured(plotScore(j), legend(j)));
      const categories = data.categories && data.categories[j];
      if (categories) all.push(pictured(plotCategories(j, categories),
        "Probability of each category, whose number stands at its highest point."));
      all.push(numbers(j));
    } else all.push(make("p", "This item has no curve to draw.", { class: "missing" }));
    all.push(make("h4", "Parameters"), listed(["what", "value"],
      data.columns.slice(1).map((c) => [c.name, cell(c, j)]), "Parameters of item " + ids[j]));
    data.results.forEach((result) => {
      const rows = result.rows.filter((r) => r.values[j] !== null)
        .map((r) => [r.name, statistic(r.values[j]), r.words]);
      all.push(make("h4", result.name));
      if (rows.length) all.push(listed(["statistic", "value", "meaning"], rows,
        result.name + " of item " + ids[j], { words: 2 }));
      else all.push(make("p", "Nothing is known of this item.", { class: "missing" }));
    });
    data.options.forEach((result) => all.push(...optionsOf(j, result)));
    return all;
  }
  function open(j) {
    current = j;
    at("item-title").textContent = "Item " + ids[j];
    at("item-content").replaceChildren(...content(j));
    const n = shown.indexOf(j);
    at("item-previous").disabled = n <= 0;
    at("item-next").disabled = n < 0 || n === shown.length - 1;
    if (!panel.open) {
      opener = document.activeElement;
      panel.showModal();
    }
    panel.scrollTop = 0;
    let address = "#item-parameters"; // of a name that is no Unicode
    try { address = "#item=" + encodeURIComponent(ids[j]); } catch { /* it has no address */ }
    history.replaceState(null, "", address);
  }
  function step(by) {
    const n = shown.indexOf(current) + by;
    if (n >= 0 && n < shown.length) open(shown[n]);
  }
  function closed() {
    history.replaceState(null, "", "#item-parameters");
    if (opener && opener.isConnected) opener.focus();
  }
  function fromAddress() {
    if (!location.hash.startsWith("#item=")) return;
    let id = location.hash.slice(6);
    try { id = decodeURIComponent(id); } catch { return; }
    const j = ids.indexOf(id);
    if (j >= 0) open(j);
  }

  // --- CSV ---

  const quoted = (text) => (/[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
  const lines = (rows) => rows.map((cells) => cells.map(quoted).join(",") + "\n").join("");
  const fileOf = (what, j) => what + "_" + ids[j].replace(/[^\w.-]+/g, "_") + ".csv";
  // A cell as it is shown: a dash is empty, numbers have no separators of thousands, and what a
  // spreadsheet would take for a formula begins with an apostrophe.
  function plain(text, k) {
    if (text === NOTHING) return "";
    if (k && /^-?\d{1,3}(,\d{3})*(\.\d+)?$/.test(text)) return text.replaceAll(",", "");
    const number = /^[+-](\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
    return !number && /^'*[=@\t\r\n+-]/.test(text) ? "'" + text : text;
  }
  function csv() {
    const fields = [];
    columns.forEach((c) => {
      if (c.words) fields.push([c.name, (j) => (c.csv && c.csv[j]) || c.words[j]]);
      else if (Array.isArray(c.values[0])) c.values[0].forEach((_, k) => {
        fields.push([c.name + " " + (k + 1), (j) => c.values[j][k]]);
        if (c.errors) fields.push([c.name + " " + (k + 1) + " ±", (j) => c.errors[j][k]]);
      });
      else {
        fields.push([c.name, (j) => c.values[j]]);
        if (c.errors) fields.push([c.name + " ±", (j) => c.errors[j]]);
      }
    });
    data.results.forEach((r) => r.rows.forEach((s) => fields.push([r.name + ": " + s.name, (j) => s.values[j]])));
    const full = (v) => (v === null || v === undefined ? "" : v === "∞" ? "inf" : v === "-∞" ? "-inf" : String(v));
    return lines([fields.map(([name]) => name), ...shown.map((j) => fields.map(([, of]) => full(of(j))))]);
  }
  function save(file, text) {
    const link = make("a", null, { download: file });
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- begin ---

  function filters() {
    const count = {}, select = at("item-filter");
    data.flags.forEach((flags) => flags.forEach(([flag]) => { count[flag] = (count[flag] || 0) + 1; }));
    const any = ids.filter((_, j) => isFlagged(j)).length;
    const options = [["", "all items"], ["any", "flagged (" + number(any, 0) + ")"],
      ["none", "not flagged (" + number(ids.length - any, 0) + ")"]];
    Object.keys(count).sort().forEach((f) => options.push(["=" + f, f + " (" + number(count[f], 0) + ")"]));
    options.forEach(([value, text]) => select.append(make("option", text, { value })));
  }
  header();
  filters();
  choose();
  frame.querySelectorAll(".remark").forEach((remark) => { remark.hidden = true; }); // of rows left out
  at("item-tools").hidden = false;
  let waiting = 0;
  at("item-search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(choose, 80);
  });
  at("item-filter").addEventListener("change", choose);
  at("item-csv").addEventListener("click", () => save("item_table.csv", csv()));
  at("item-more").firstElementChild.addEventListener("click", rest);
  frame.addEventListener("scroll", () => {
    if (frame.scrollTop + frame.clientHeight > frame.scrollHeight - 600) draw(MORE);
  }, { passive: true });
  addEventListener("beforeprint", rest);
  at("item-previous").addEventListener("click", () => step(-1));
  at("item-next").addEventListener("click", () => step(1));
  at("item-close").addEventListener("click", () => panel.close());
  panel.addEventListener("close", closed);
  panel.addEventListener("click", (event) => { if (event.target === panel) panel.close(); });
  addEventListener("hashchange", fromAddress);
  fromAddress();

  // pictures that are wider than the screen can be moved by the keyboard too
  function reach() {
    document.querySelectorAll(".picture").forEach((box) => {
      const wide = box.scrollWidth > box.clientWidth;
      const given = { tabindex: "0", role: "group", "aria-label": "Picture, moved sideways" };
      for (const name in given) {
        if (wide) box.setAttribute(name, given[name]); else box.removeAttribute(name);
      }
    });
  }
  addEventListener("resize", reach);
  reach();
})();

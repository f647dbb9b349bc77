// The attention of a sentence and its translation: their pieces, which light up with their
// partners, and the weights as a table, which is the heat map.

import { find, make, setTabStop, useArrowKeys } from "./elements.js";
import { post } from "./server.js";

const MAX_PIECES = 100; // of a side; more can't be read
const KINDS = {
  cross: {
    rows: "Translation",
    columns: "Source",
    note: "While the model writes a piece of the translation, it looks at the pieces of the source.",
  },
  encoder: {
    rows: "Source, looking",
    columns: "Source, looked at",
    note: "Each piece of the source looks at all pieces of the source.",
  },
  decoder: {
    rows: "Translation, looking",
    columns: "Translation, looked at",
    note: "Each piece of the translation looks at the pieces up to itself.",
  },
};

let fields = null; // of the requests: the texts, their languages, the key
let answers = new Map(); // by kind and layer
let request = new AbortController();
let shown = null; // {rows, columns, weights} of the head on the page

/** Show the attention of a pair of texts; nothing is asked for while the section is closed. */
export function showAttention(newFields) {
  find("attention").hidden = false;
  if (JSON.stringify(fields) === JSON.stringify(newFields)) return;
  const names = ["source_language", "target_language"];
  if (!fields || names.some((name) => fields[name] !== newFields[name])) {
    // Another model may have other layers and heads.
    find("layer").replaceChildren();
    find("head").replaceChildren();
  }
  fields = newFields;
  answers = new Map();
  update();
}

export function hideAttention() {
  find("attention").hidden = true;
  request.abort();
  fields = null;
}

async function update() {
  request.abort();
  if (!fields || !find("attention").open) return;
  const { signal } = (request = new AbortController());
  const kind = document.querySelector("[name=kind]:checked").value;
  const layer = Number(find("layer").value) || null; // null: the last
  let answer = answers.get(`${kind} ${layer}`);
  try {
    if (!answer) {
      answer = await post("attention", { ...fields, kind, layer, head: "all" }, signal);
      answers.set(`${kind} ${answer.layers[0]}`, answer);
    }
    draw(kind, answer);
    find("attention-error").textContent = "";
    find("map").hidden = false;
  } catch (error) {
    if (signal.aborted) return;
    find("attention-error").textContent = error.message;
    find("map").hidden = true;
  }
}

function draw(kind, { layers, heads, rows, columns, weights }) {
  if (Math.max(rows.length, columns.length) > MAX_PIECES) {
    throw new Error(`The sentence has more than ${MAX_PIECES} pieces, too many to show.`);
  }
  // Asked for no layer, the server answers with the last, whose number is the count of layers.
  if (find("layer").length === 0) fillNumbers(find("layer"), layers[0]);
  if (find("head").length === 0) {
    fillNumbers(find("head"), heads.length);
    find("head").prepend(new Option("mean of all", 0, true, true));
  }
  const head = Number(find("head").value);
  shown = {
    rows,
    columns,
    weights: head === 0 ? mean(weights[0]) : weights[0][head - 1],
  };
  find("kind-note").textContent = KINDS[kind].note;
  for (const side of ["rows", "columns"]) {
    find(`${side}-name`).textContent = KINDS[kind][side];
    drawPieces(find(side), shown[side]);
  }
  drawTable(`Layer ${layers[0]}, ${head === 0 ? "mean of all heads" : `head ${head}`}`);
  light(null);
}

function fillNumbers(select, count) {
  const numbers = Array.from({ length: count }, (_, i) => new Option(i + 1, i + 1));
  select.replaceChildren(...numbers);
  select.value = count;
}

function mean(heads) {
  const sum = (numbers) => numbers.reduce((a, b) => a + b);
  return heads[0].map((row, i) =>
    row.map((_, j) => sum(heads.map((head) => head[i][j])) / heads.length),
  );
}

// SentencePiece's mark stands where a word begins.
const plain = (piece) => piece.replace(/^\u2581(?=.)/, "");

function drawPieces(container, pieces) {
  const buttons = pieces.map((piece, i) => {
    const button = make("button", { type: "button", textContent: plain(piece) });
    button.dataset.index = i;
    button.classList.toggle("joined", i > 0 && !/^[\u2581<]/.test(piece));
    button.classList.toggle("symbol", /^<.*>$/.test(piece));
    return button;
  });
  container.replaceChildren(...buttons);
  setTabStop(container);
}

function drawTable(title) {
  const { rows, columns, weights } = shown;
  const table = find("weights");
  table.replaceChildren(make("caption", { className: "unseen", textContent: title }));
  const top = table.createTHead().insertRow();
  top.append(make("td"), ...columns.map((piece) => heading(piece, "col")));
  const body = table.createTBody();
  rows.forEach((piece, i) => {
    body.insertRow().append(heading(piece, "row"), ...weights[i].map(weightCell));
  });
}

function heading(piece, scope) {
  const cell = make("th", { scope });
  cell.append(make("span", { textContent: plain(piece), dir: "auto" }));
  return cell;
}

function weightCell(weight) {
  const cell = make("td");
  cell.style.setProperty("--weight", weight);
  cell.append(make("span", { className: "unseen", textContent: weight.toFixed(2) }));
  return cell;
}

/** Light up a piece and, as strongly as their weights, its partners; or put all lights out. */
function light(side, index) {
  const { rows, columns, weights } = shown;
  const strengths = {
    rows: side === "columns" ? weights.map((row) => row[index]) : rows.map(() => 0),
    columns: side === "rows" ? weights[index] : columns.map(() => 0),
  };
  for (const name of ["rows", "columns"]) {
    [...find(name).children].forEach((piece, i) => {
      piece.style.setProperty("--weight", strengths[name][i]);
      piece.classList.toggle("lit", name === side && i === index);
    });
  }
  const table = find("weights");
  table.classList.toggle("dim", side !== null);
  for (const cell of table.querySelectorAll("th, td")) {
    const at = { rows: cell.parentElement.rowIndex - 1, columns: cell.cellIndex - 1 };
    cell.classList.toggle("lit", side !== null && at[side] === index);
  }
  find("readout").textContent = side
    ? describe(side, index, strengths[side === "rows" ? "columns" : "rows"])
    : "Point at a piece, or move to it with Tab and the arrow keys, to see its partners.";
}

function describe(side, index, strengths) {
  const others = shown[side === "rows" ? "columns" : "rows"];
  const partners = strengths
    .map((weight, i) => ({ weight, piece: plain(others[i]) }))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, 3)
    .map(({ weight, piece }) => `${piece}\u00a0${weight.toFixed(2)}`);
  const verb = side === "rows" ? "looks at" : "is looked at by";
  return `${plain(shown[side][index])} ${verb} ${partners.join(", ")}`;
}

function lightAt({ target }) {
  const piece = target.closest("[data-index]");
  const cell = target.closest("#weights td, #weights th");
  if (piece) {
    light(piece.parentElement.id, Number(piece.dataset.index));
  } else if (cell?.parentElement.rowIndex > 0) {
    light("rows", cell.parentElement.rowIndex - 1);
  } else if (cell?.cellIndex > 0) {
    light("columns", cell.cellIndex - 1);
  }
}

find("attention").addEventListener("toggle", update);
find("controls").addEventListener("change", update);
find("map").addEventListener("pointerover", lightAt);
find("map").addEventListener("focusin", lightAt);
find("map").addEventListener("pointerleave", () => {
  const focused = document.activeElement.closest("#map [data-index]");
  if (focused) lightAt({ target: focused });
  else light(null);
});
useArrowKeys(find("rows"));
useArrowKeys(find("columns"));

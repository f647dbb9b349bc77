// The page: it translates while the user types, in the browser.

import { drawCard } from "./card.js";
import { load } from "./translator.js";

const PAUSE = 300; // milliseconds without a key before the text is translated
const WORK = 30; // milliseconds after which the browser gets its turn

const find = (id) => document.getElementById(id);
const [source, output, target] = ["source", "output", "target-language"].map(find);

let translator = null;
let timer = 0;
let running = new AbortController(); // aborted when a newer text makes its translation stale
const known = new Map(); // translations of lines

// Loading

async function start() {
  listen();
  try {
    const [ort, { Tokenizer }] = await loadLibraries();
    translator = await load(ort, Tokenizer, readWithProgress());
  } catch (error) {
    return showError(error.message);
  } finally {
    find("loading").hidden = true;
  }
  showLanguages(translator.settings.model);
  find("about").hidden = !translator.settings.card;
  schedule(0); // the field may have a text by now
}

/** Load ONNX Runtime and the tokenizer's library, from where the page's head names them. */
async function loadLibraries() {
  const { src, dataset } = find("onnxruntime");
  try {
    const [ort, tokenizers, wasm] = await Promise.all([
      import(src),
      import(find("tokenizers").src),
      fetch(dataset.wasm, { integrity: dataset.wasmIntegrity }),
    ]);
    if (!wasm.ok) throw new Error(`status ${wasm.status}`);
    ort.env.wasm.wasmBinary = await wasm.arrayBuffer();
    ort.env.wasm.numThreads = 1; // several need headers that few hosts send
    return [ort, tokenizers];
  } catch (error) {
    const { host } = new URL(src);
    throw new Error(`The libraries can't be loaded from ${host}: ${error.message}`);
  }
}

/** Return a function that reads a file of this folder, and shows how much of all has come. */
function readWithProgress() {
  const progress = find("progress");
  let [came, size] = [0, 0];
  return async (name) => {
    // A newer export may lie at the same address.
    const response = await fetch(name, { cache: "no-cache" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    size += Number(response.headers.get("Content-Length"));
    const chunks = [];
    for (const reader = response.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      chunks.push(value);
      came += value.length;
      if (size >= came) progress.value = came / size; // a compressed file's size is another
    }
    return new Blob(chunks).arrayBuffer();
  };
}

// Languages

const names = new Intl.DisplayNames("en", { type: "language" });

function nameOf(code, otherwise) {
  try {
    return names.of(code);
  } catch {
    return code || otherwise; // no code of a language
  }
}

function showLanguages({ source_language, target_languages }) {
  const name = nameOf(source_language, "Source");
  find("source-language").textContent = name;
  source.lang = source_language;
  const codes = Object.keys(target_languages);
  target.replaceChildren(...codes.map((code) => new Option(nameOf(code, "Target"), code)));
  target.disabled = codes.length < 2;
  document.title = `Translate ${name} to ${[...target.options].map((o) => o.text).join(", ")}`;
}

// From the text to its translation

function schedule(wait = PAUSE) {
  clearTimeout(timer);
  running.abort();
  find("clear").hidden = !source.value;
  if (!translator) return;
  showError("");
  output.ariaBusy = "false";
  output.lang = target.value; // for fonts and screen readers
  if (!source.value.trim()) {
    show();
    return;
  }
  output.classList.add("stale");
  timer = setTimeout(translate, wait);
}

async function translate() {
  const { signal } = (running = new AbortController());
  const began = performance.now();
  const lines = [];
  let [rested, isShown] = [began, true];
  const beforeStep = async () => {
    if (performance.now() - rested > WORK) {
      if (!isShown) output.textContent = lines.join("\n");
      isShown = true;
      await browsersTurn();
      rested = performance.now();
    }
    signal.throwIfAborted();
  };
  output.ariaBusy = "true";
  try {
    for (const line of source.value.split("\n")) {
      const key = `${target.value} ${line}`;
      if (!known.has(key)) {
        known.set(key, await translator.translate(line, { to: target.value, beforeStep }));
        isShown = false;
      }
      lines.push(known.get(key));
      await beforeStep();
    }
    show(lines.join("\n"), `${Math.round(performance.now() - began).toLocaleString("en")} ms`);
  } catch (error) {
    if (signal.aborted) return; // a newer text is on its way
    show();
    showError(`The text can't be translated: ${error.message}`);
  }
  output.ariaBusy = "false";
}

/** Let the browser draw and answer; a timer would wait for a second in a hidden tab. */
function browsersTurn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(null);
  });
}

function show(text = "", timing = "") {
  output.textContent = text;
  output.classList.remove("stale");
  find("timing").textContent = timing;
  find("copy").hidden = !text;
}

function showError(message) {
  find("error").textContent = message;
  source.ariaInvalid = !!message;
}

async function copy() {
  let message = "Copied";
  try {
    await navigator.clipboard.writeText(output.textContent);
  } catch {
    // Pages without HTTPS get no clipboard, unless they come from this machine.
    getSelection().selectAllChildren(output);
    message = "Selected, to be copied by keyboard";
  }
  find("copied").textContent = message;
  setTimeout(() => (find("copied").textContent = ""), 3000);
}

async function showCard() {
  const card = find("model-card");
  if (card.hasChildNodes()) return;
  const response = await fetch(translator.settings.card).catch(() => null);
  card.replaceChildren(...(response?.ok ? drawCard(await response.text()) : ["The card is missing."]));
}

function listen() {
  source.oninput = () => schedule();
  source.onkeydown = ({ key, ctrlKey, metaKey }) => {
    if (key === "Enter" && (ctrlKey || metaKey)) schedule(0);
  };
  target.onchange = () => schedule(0);
  find("clear").onclick = () => {
    source.value = "";
    schedule(0);
    source.focus();
  };
  find("copy").onclick = copy;
  find("about").ontoggle = showCard;
}

if ("".toWellFormed) start(); // else the browser is too old

// The page of `seq2seq serve`: it translates while the user types.

import { hideAttention, showAttention } from "./attention.js";
import { markDifferences } from "./differences.js";
import { find, make, setTabStop, useArrowKeys } from "./elements.js";
import { get, post } from "./server.js";
import { makeWords, markAtCaret, markAtPointer, unmark } from "./words.js";

const MAX_ALTERNATIVES = 3; // to show
const SUSPICIONS = {
  empty: "The translation is empty.",
  copied: "The translation is equal to the text.",
  too_short: "The translation is far too short.",
  repeating: "The translation repeats itself.",
  other_numbers: "Numbers or placeholders differ.",
  output_truncated: "The translation was cut off at the maximum length.",
};

const source = find("source");
const output = find("output");

let settings = {};
let languages = [];
let timer = 0; // of the next request
let request = new AbortController(); // aborted when a newer text makes its answer stale

// The translation on the page. A sentence has the server's `details`, its `choices` (the best and
// its alternatives), the index `chosen`, where its source begins, and the `gap` before its text.
let sentences = [];
let tail = "";
let selected = 0;

const sentenceText = (sentence) => sentence.choices[sentence.chosen].text;
const translation = () => sentences.map((s) => s.gap + sentenceText(s)).join("") + tail;
const format = (number) => number.toLocaleString("en");

// Languages

async function start() {
  try {
    [settings, languages] = await Promise.all([get("frontend/settings"), get("languages")]);
  } catch (error) {
    showError(error.message);
    return;
  }
  find("key").hidden = !settings.keyRequired;
  const sources = languages.filter((language) => language.targets.length > 0);
  fillLanguages(find("source-language"), sources, settings.language.source.code);
  fillTargets(settings.language.target.code);
  listen();
  schedule(0); // the field may have a text by now
}

function fillLanguages(select, choices, code) {
  select.replaceChildren(...choices.map((choice) => new Option(choice.name, choice.code)));
  if (choices.some((choice) => choice.code === code)) select.value = code;
  select.disabled = choices.length < 2;
}

const chosenLanguages = () => [find("source-language").value, find("target-language").value];
const targetsOf = (code) => languages.find((language) => language.code === code)?.targets ?? [];

function fillTargets(code) {
  const targets = targetsOf(find("source-language").value);
  const choices = languages.filter((language) => targets.includes(language.code));
  fillLanguages(find("target-language"), choices, code);
  showLanguages();
}

function showLanguages() {
  const [from, to] = chosenLanguages();
  // For fonts, spelling checkers and screen readers.
  source.lang = from;
  output.lang = find("choices").lang = to;
  find("swap").hidden = !targetsOf(to).includes(from);
  find("arrow").hidden = !find("swap").hidden;
}

function swap() {
  const [from, to] = chosenLanguages();
  if (sentences[0] && !output.matches(".stale")) source.value = translation();
  find("source-language").value = to;
  fillTargets(from);
  schedule(0);
}

// From the text to its translation

function schedule(wait = settings.frontendTimeout) {
  clearTimeout(timer);
  request.abort();
  showError("");
  const length = [...source.value].length; // in code points, as the server counts
  find("count").textContent = `${format(length)} / ${format(settings.charLimit)} characters`;
  find("clear").hidden = length === 0;
  unmark(); // the words move
  output.ariaBusy = "false";
  if (source.value.trim() === "") {
    clear();
    return;
  }
  output.classList.add("stale");
  if (length > settings.charLimit) {
    showError(`At most ${format(settings.charLimit)} characters can be translated at once.`);
  } else {
    timer = setTimeout(translate, wait);
  }
}

const key = () => (settings.keyRequired ? { api_key: find("api-key").value } : {});

async function translate() {
  const { signal } = (request = new AbortController());
  const began = performance.now();
  const [from, to] = chosenLanguages();
  const alternatives = Math.min(MAX_ALTERNATIVES, settings.maxAlternatives);
  const fields = { q: source.value, source: from, target: to, alternatives, details: true };
  output.ariaBusy = "true";
  try {
    show(await post("translate", { ...fields, ...key() }, signal));
    showError("");
    find("timing").textContent = `${format(Math.round(performance.now() - began))} ms`;
  } catch (error) {
    if (signal.aborted) return; // a newer text is on its way
    const seconds = error.retryAfter;
    showError(error.message + (seconds ? ` Trying again in ${seconds} s.` : ""));
    if (seconds) timer = setTimeout(translate, 1000 * seconds);
  }
  output.ariaBusy = "false";
}

/** Show an answer; its sentences are in the order of the text, with anything between them. */
function show({ translatedText, details }) {
  let [read, written] = [0, 0];
  sentences = details.map((detail) => {
    const begin = Math.max(written, translatedText.indexOf(detail.text, written));
    const gap = translatedText.slice(written, begin);
    const sourceBegin = Math.max(read, source.value.indexOf(detail.source, read));
    read = sourceBegin + detail.source.length;
    written = begin + detail.text.length;
    return { ...detail, choices: [detail, ...detail.alternatives], chosen: 0, gap, sourceBegin };
  });
  tail = translatedText.slice(written);
  selected = sentenceAtCaret();
  output.classList.remove("stale");
  find("copy").hidden = false;
  showOutput();
  showWarnings();
  showChoices();
}

function clear() {
  sentences = [];
  output.replaceChildren();
  output.classList.remove("stale");
  find("timing").textContent = "";
  for (const id of ["copy", "warnings", "alternatives"]) find(id).hidden = true;
  hideAttention();
}

// The translation and its sentences

function showOutput() {
  const parts = sentences.flatMap((sentence, i) => {
    const part = make("span");
    part.append(...makeWords(sentenceText(sentence)));
    part.dataset.sentence = i;
    if (sentences.length > 1) part.role = "button";
    return [sentence.gap, part];
  });
  output.replaceChildren(...parts, tail);
  markSelected();
}

function markSelected() {
  const buttons = [...output.querySelectorAll("[role=button]")];
  buttons.forEach((button, i) => (button.ariaPressed = String(i === selected)));
  setTabStop(output, buttons[selected]);
}

function sentenceAtCaret() {
  const after = sentences.findIndex((s) => s.sourceBegin > source.selectionStart);
  return Math.max(0, (after < 0 ? sentences.length : after) - 1);
}

function selectSentence(index) {
  if (index === selected || index >= sentences.length) return;
  selected = index;
  markSelected();
  showChoices();
}

function selectPart(event) {
  const part = event.target.closest("[data-sentence]");
  if (part) selectSentence(Number(part.dataset.sentence));
}

function followPointer({ target }) {
  if (target.matches(".word")) markAtPointer(sentences[target.parentNode.dataset.sentence], target);
  else unmark();
}

function followCaret() {
  if (document.activeElement !== source) return;
  selectSentence(sentenceAtCaret());
  const part = output.querySelector(`[data-sentence="${selected}"]`);
  if (part) markAtCaret(sentences[selected], part);
}

function showWarnings() {
  const items = sentences.flatMap((sentence) =>
    warningsOf(sentence).map((warning) => {
      const item = make("li", { textContent: warning });
      if (sentences.length > 1) item.prepend(make("q", { textContent: sentence.source }), " ");
      return item;
    }),
  );
  find("warnings").replaceChildren(...items);
  find("warnings").hidden = items.length === 0;
}

function warningsOf({ suspect, unknown }) {
  const warnings = suspect.filter((name) => SUSPICIONS[name]).map((name) => SUSPICIONS[name]);
  const count = unknown === 1 ? "1 piece" : `${unknown} pieces`;
  if (unknown) warnings.push(`The model doesn't know ${count} of the text.`);
  return warnings;
}

async function copy() {
  let message = "Copied";
  try {
    await navigator.clipboard.writeText(translation());
  } catch {
    // Pages without HTTPS get no clipboard, unless they come from this machine.
    getSelection().selectAllChildren(output);
    message = "Selected: copy with Ctrl+C";
  }
  find("copied").textContent = message;
  setTimeout(() => (find("copied").textContent = ""), 3000);
}

// The selected sentence: its alternatives and its attention

function showChoices() {
  const sentence = sentences[selected];
  find("alternatives").hidden = !sentence || sentence.choices.length < 2;
  find("which").hidden = sentences.length < 2;
  if (!sentence) {
    hideAttention();
    return;
  }
  find("choices").replaceChildren(
    ...sentence.choices.map((choice, i) => {
      const label = make("label");
      const input = make("input", { type: "radio", name: "choice", value: i });
      input.checked = i === sentence.chosen;
      const text = make("span", { className: "text" });
      text.append(...markDifferences(choice.text, sentence.choices[0].text));
      const score = choice.score.toFixed(2).replace("-", "\u2212");
      const number = make("span", { className: "score", dir: "ltr", textContent: score });
      label.append(input, text, number);
      return label;
    }),
  );
  showAttentionOf(sentence);
}

function choose(event) {
  sentences[selected].chosen = Number(event.target.value);
  showOutput();
  showAttentionOf(sentences[selected]);
}

function showAttentionOf(sentence) {
  const [from, to] = chosenLanguages();
  showAttention({
    source: sentence.source,
    target: sentenceText(sentence),
    source_language: from,
    target_language: to,
    ...key(),
  });
}

function showError(message) {
  find("error").textContent = message;
  source.ariaInvalid = String(message !== "");
}

function listen() {
  source.addEventListener("input", () => schedule());
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) schedule(0);
  });
  document.addEventListener("selectionchange", followCaret);
  find("source-language").addEventListener("change", () => {
    fillTargets(find("target-language").value);
    schedule(0);
  });
  find("target-language").addEventListener("change", () => {
    showLanguages();
    schedule(0);
  });
  find("swap").addEventListener("click", swap);
  find("key").addEventListener("submit", (event) => {
    event.preventDefault();
    schedule(0);
  });
  find("clear").addEventListener("click", () => {
    source.value = "";
    schedule(0);
    source.focus();
  });
  find("copy").addEventListener("click", copy);
  find("choices").addEventListener("change", choose);
  output.addEventListener("click", selectPart);
  output.addEventListener("pointerover", followPointer);
  output.addEventListener("pointerleave", unmark);
  output.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    selectPart(event);
  });
  useArrowKeys(output);
}

start();

// Words that belong together, at the pointer or the caret.

import { find, make } from "./elements.js";

const WORD = /([^ \t\r\n]+)/; // as the server divides texts

const wordsOf = (element) => [...element.querySelectorAll(".word")];

/** Make an element for each word, with the blanks between them. */
export function makeWords(text) {
  const parts = text.split(WORD);
  return parts.map((part, i) => (i % 2 ? make("span", { className: "word", textContent: part }) : part));
}

/** Mark what belongs to a word of the translation. */
export function markAtPointer(sentence, word) {
  const part = word.parentNode;
  const place = wordsOf(part).indexOf(word);
  mark(sentence, part, ([, j]) => j === place);
}

/** Mark what belongs to the word at the caret. */
export function markAtCaret(sentence, part) {
  const caret = find("source").selectionStart - sentence.sourceBegin;
  const place = (sentence.source.slice(0, caret + 1).split(WORD).length >> 1) - 1;
  mark(sentence, part, ([i]) => i === place);
}

function mark(sentence, part, chosen) {
  unmark();
  if (find("output").matches(".stale")) return; // of another text
  const links = sentence.choices[sentence.chosen].alignments.filter(chosen);
  const before = find("source").value.slice(0, sentence.sourceBegin);
  const parts = sentence.source.split(WORD);
  for (const i of new Set(links.map(([i]) => 2 * i + 1))) {
    parts[i] = make("mark", { textContent: parts[i] });
  }
  find("marks").replaceChildren(before, ...parts);
  const words = wordsOf(part);
  for (const [, j] of links) words[j].classList.add("linked");
}

export function unmark() {
  find("marks").replaceChildren();
  for (const word of wordsOf(find("output"))) word.classList.remove("linked");
}

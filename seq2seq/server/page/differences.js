// The words in which one text differs from another.

import { make } from "./elements.js";

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
const split = (text) => [...segmenter.segment(text)].map(({ segment }) => segment);

/** Return the nodes of a text, with a <mark> around the words that `other` doesn't have there. */
export function markDifferences(text, other) {
  const words = split(text);
  const common = inCommon(words, split(other));
  const runs = []; // of words that are all in common, or all not
  words.forEach((word, i) => {
    if (i > 0 && common[i] === common[i - 1]) runs.at(-1).text += word;
    else runs.push({ text: word, common: common[i] });
  });
  return runs.flatMap((run) => {
    if (run.common || !run.text.trim()) return [run.text];
    const [, before, inner, after] = run.text.match(/^(\s*)(.*?)(\s*)$/s);
    return [before, make("mark", { textContent: inner }), after];
  });
}

/** Return for each word whether it is in the longest common subsequence. */
function inCommon(words, others) {
  // length[i][j]: that of the longest common subsequence of words[i:] and others[j:]
  const length = Array.from({ length: words.length + 1 }, () => Array(others.length + 1).fill(0));
  for (let i = words.length - 1; i >= 0; i--) {
    for (let j = others.length - 1; j >= 0; j--) {
      length[i][j] =
        words[i] === others[j]
          ? length[i + 1][j + 1] + 1
          : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  let j = 0;
  return words.map((word, i) => {
    while (word !== others[j] && length[i][j] > length[i + 1][j]) j++;
    const found = j < others.length && word === others[j];
    if (found) j++;
    return found;
  });
}

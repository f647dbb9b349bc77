// Text in capitals, read in the case that a vocabulary knows, and the case of letters.

import { countUnknown } from "./pieces.js";
import { lengthOf, matchAt } from "./text.js";

const ALSO_IN_CAPITALS = /[ßªº]/;

const isDotted = (language) => /^(tr|az)([-_]|$)/i.test(language);

const lowerLetters = (text, language) =>
  (isDotted(language) ? text.replaceAll("İ", "i").replaceAll("I", "ı") : text).toLowerCase();

const upperLetters = (text, language) =>
  (isDotted(language) ? text.replaceAll("i", "İ") : text).toUpperCase();

/** Write a text in capitals, but for what means something else in another case. */
export function upperCase(text, language, { kept }) {
  let [upper, end] = ["", 0];
  for (const match of text.matchAll(kept)) {
    upper += upperLetters(text.slice(end, match.index), language) + match[0];
    end = match.index + match[0].length;
  }
  return upper + upperLetters(text.slice(end), language);
}

/** Return a text in capitals in the case that the vocabulary knows; null for any other text. */
export function knownCase(text, pieces, { model, rules, morePieces }) {
  // Addresses and the like become digits, which are no words.
  const digits = text.replace(rules.kept, (kept) => "0".repeat(kept.length));
  const places = [...digits.matchAll(rules.word)];
  const words = places.map((match) => match[0]);
  if (!words.every(isInCapitals) || Math.max(0, ...words.map(lengthOf)) < 2) return null;
  const sums = { unknown: 0, count: 0, fewestUnknown: 0, fewest: 0 };
  let [cased, end] = ["", 0];
  for (const [i, { index, 0: word }] of places.entries()) {
    const begins = i === 0 || matchAt(rules.stop, text.slice(end, index), 0);
    const costs = formsOf(word, model.source_language, begins, rules).map((form) => costOf(form, pieces));
    const [best] = costs.sort((a, b) => a.unknown - b.unknown || a.count - b.count);
    const own = costOf(word, pieces);
    sums.unknown += own.unknown;
    sums.count += own.count;
    sums.fewestUnknown += best.unknown;
    sums.fewest += best.count;
    cased += text.slice(end, index) + best.form;
    end = index + word.length;
  }
  if (words.length === 1 && (sums.fewestUnknown !== 0 || sums.fewest !== 1)) return null;
  if (sums.unknown <= sums.fewestUnknown && sums.count < morePieces * sums.fewest) return null;
  return cased + text.slice(end);
}

function costOf(form, pieces) {
  const ids = pieces.encode(form);
  return { form, unknown: countUnknown(ids), count: ids.length };
}

const isInCapitals = (word) =>
  [...word].every((c) => !/\p{L}/u.test(c) || /\p{Uppercase}/u.test(c) || ALSO_IN_CAPITALS.test(c));

/** The cases that a word may have, the likeliest first. */
function formsOf(word, language, begins, { englishI }) {
  const small = [...lowerLetters(word, language)];
  const isAligned = small.length === lengthOf(word); // a letter may become several
  const letters = isAligned ? small : [...word].map((c) => lowerLetters(c, language));
  const capitalized = [[...word][0], ...letters.slice(1)].join("");
  if (language.startsWith("en") && englishI.test(word)) return [capitalized];
  const lower = letters.join("");
  return begins ? [capitalized, lower, word] : [lower, capitalized, word];
}

// Segments: the model's inputs, each a line, or a column, a sentence or another part of it. The
// patterns are the program's, whose decoding/segments.py explains them.

import { knownCase } from "./capitals.js";
import { splitSentences } from "./sentences.js";
import { isLower, isSpace, lengthOf, matchAt, split, strip, stripEnd, stripStart } from "./text.js";

const LETTER = /[\p{Lu}\p{Ll}\p{Lt}\p{Lo}]/u;
// Scripts without spaces, but not Hangul, and emoji
const WIDE =
  /(?![\p{sc=Hang}㉈-㉏㉿䷀-䷿🇦-🇿])[\u2329\u232a⺀-〾ぁ-\ua4cf\uf900-\ufaff︐-︙︰-﹫！-｠￠-￦\u{16fe0}-\u{1b2ff}🈀-🉥\u{20000}-\u{3fffd}\p{Emoji_Presentation}]/u;

/**
 * Divide a line: at tabs, at the ends of sentences unless `bySentence` is false, and where it is
 * too long. A segment in capitals is read in the case that the vocabulary knows.
 */
export function makeSegments(line, pieces, settings, bySentence = true) {
  const { rules, model } = settings;
  let texts = line.replace(/[\r\n]+$/, "").match(rules.column) ?? [];
  if (bySentence) texts = texts.flatMap((text) => splitSentences(text, settings));
  const segments = [];
  for (const text of texts.length ? texts : [""]) {
    const [start, end] = wordsOf(text, pieces, settings);
    let copied = text.slice(0, start);
    for (const part of splitText(text.slice(start, end), pieces, settings)) {
      const source = strip(part);
      const cased = knownCase(source, pieces, settings);
      const ids = pieces.encode(cased ?? source).slice(0, model.max_source_tokens);
      segments.push({
        ids,
        limit: Math.min(ids.length + model.max_extra_tokens, model.max_target_tokens),
        isInCapitals: cased !== null,
        copied: copied.replace(rules.endOfLine, " "),
        separator: part.slice(stripEnd(part).length).replace(rules.endOfLine, " "),
      });
      copied = ""; // it stands before the first part alone
    }
    segments.at(-1).separator += text.slice(end).replace(rules.endOfLine, " ");
  }
  return segments;
}

/** Where the words of a text begin and end; what is around them is copied. */
function wordsOf(text, pieces, { rules, words, hasLetters }) {
  const all = text.length;
  const hasWords = split(text).some((word) => LETTER.test(word) && !rules.address.test(word));
  if (hasLetters && (!hasWords || rules.measures.test(text))) return [all, all];
  const signs = {};
  let [start, end] = [all - stripStart(text).length, all];
  for (const match of text.matchAll(rules.signs)) {
    if (!pieces.lacks(match[0])) continue;
    signs[match.index] = match;
    if (match.index + match[0].length === all) end = match.index;
  }
  for (let label; (label = signs[start] ?? (hasLetters && matchAt(rules.label, text, start))); ) {
    if (!isLabel(label, text, words)) break;
    start += label[0].length;
  }
  return [start, Math.max(start, end)];
}

function isLabel({ index, 0: label, groups = {} }, text, words) {
  const after = text.slice(index + label.length, index + label.length + 100);
  if (groups.ordinal !== undefined && after) return !words.ordinals;
  if (groups.initial !== undefined && after) {
    return words.starters.has(split(after)[0].toLowerCase()); // "A. The dog", but "A. Smith"
  }
  return groups.unclear === undefined || !isLower(after);
}

/** Split a text into as few parts that are not too long as possible, which make up the text. */
function* splitText(text, pieces, settings) {
  const most = settings.model.max_source_tokens;
  const tokens = (part) => pieces.encode(part).length;
  // A character is four tokens at most, its bytes.
  const fits = (part) => lengthOf(part) <= Math.max(1, most >> 2) || tokens(part) <= most;
  function* divide(part, [first, ...later]) {
    if (fits(part)) yield part;
    // The last way to split is used as often as it takes.
    else for (const inner of first(part)) yield* divide(inner, later.length ? later : [first]);
  }
  const sentences = (part) => splitSentences(part, settings);
  const breaks = settings.rules.parts.map((pattern) => (part) => part.match(pattern));
  const parts = [...divide(text, [sentences, ...breaks, halves])];
  while (parts.length) {
    let sum = tokens(parts[0]);
    const end = parts.findIndex((part, i) => i && (sum += tokens(part)) > most);
    const group = parts.splice(0, end > 0 ? end : parts.length);
    while (group.length > 1 && !fits(group.join(""))) parts.unshift(group.pop());
    yield group.join("");
  }
}

function halves(text) {
  const characters = [...text];
  const middle = characters.length >> 1;
  return [characters.slice(0, middle).join(""), characters.slice(middle).join("")];
}

/** Join translations and what is copied around them, with a space where they need one. */
export function joinTexts(segments, texts) {
  let line = "";
  segments.forEach(({ copied, separator }, i) => {
    const text = copied + texts[i];
    const before = [...line.slice(-2)].at(-1);
    const [after] = text;
    const isSpaced = !line || !text || [before, after].some((c) => isSpace(c) || WIDE.test(c));
    // Sentences of Chinese and Japanese have no space between them.
    line += (isSpaced ? "" : " ") + text + separator;
  });
  return line;
}

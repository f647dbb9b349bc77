// Texts as Python reads them: what a space is, and the length in characters.

const SPACES = /[\p{White_Space}\x1c-\x1f]+/u;
const LEADING = new RegExp(`^${SPACES.source}`, "u");

export const stripStart = (text) => text.replace(LEADING, "");
export const stripEnd = (text) => {
  let end = text.length; // a pattern takes time by the square
  while (end > 0 && SPACES.test(text[end - 1])) end--;
  return text.slice(0, end);
};
export const strip = (text) => stripEnd(stripStart(text));
export const split = (text) => text.split(SPACES).filter(Boolean);
export const isSpace = (text) => text !== "" && strip(text) === "";
export const lengthOf = (text) => [...text].length;
export const isLower = (text) => /^\p{Lowercase}/u.test(text);

/** Match a sticky pattern at an index of a text. */
export function matchAt(pattern, text, index) {
  pattern.lastIndex = index;
  return pattern.exec(text);
}

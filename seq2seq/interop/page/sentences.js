// Sentences: where one ends and the next begins. Its patterns and words are the program's, whose
// decoding/sentences.py explains them.

import { isLower, isSpace, matchAt, split, strip, stripEnd, stripStart } from "./text.js";

const ONE_LETTER = /^\p{L}$/u;
const SPACED_STOP = /\.[\p{White_Space}\x1c-\x1f]/gu;
const FIRST = /[ \u3000\t"'“„«]*/y;
const WINDOW = 60; // characters before a full stop that are looked at

/** Split a line into sentences, each with the white space that follows it. */
export function splitSentences(line, settings) {
  const ends = [...new Splitter(line, settings).ends(), line.length];
  return ends.map((end, i) => line.slice(ends[i - 1] ?? 0, end)).filter(Boolean);
}

class Splitter {
  constructor(line, { rules, marks, words }) {
    Object.assign(this, { line, rules, marks, words });
    this.isCased = /\p{Uppercase}/u.test(line);
    this.closing = pairBrackets(line, marks.brackets);
  }

  /** Yield the indices at which a sentence ends, white space included. */
  *ends() {
    let first = this.firstCharacter(0);
    let bracketEnd = -1; // of the outermost brackets that are a part of the sentence
    for (const match of this.line.matchAll(this.rules.event)) {
      const end = match.index + match[0].length;
      const { bracket, wide, narrow } = match.groups;
      if (bracket) {
        if (match.index > bracketEnd && this.isPart(match.index, first)) {
          bracketEnd = this.closing.get(match.index);
        }
      } else if (wide || narrow) {
        const isInside = match.index < bracketEnd && !this.endsWithQuotation(end, bracketEnd);
        if (!isInside && this.endsHere(match, end, first)) {
          yield end;
          first = this.firstCharacter(end);
        }
      }
    }
  }

  firstCharacter(start) {
    return start + matchAt(FIRST, this.line, start)[0].length;
  }

  /** Whether brackets are a part of their sentence, rather than sentences of their own. */
  isPart(opening, first) {
    const closing = this.closing.get(opening);
    if (closing === undefined) return false;
    if (opening > first) return true;
    const after = stripStart(this.line.slice(closing + 1, closing + 13));
    const { narrow, wide } = this.marks;
    if ("「『".includes(this.line[opening])) {
      const isAlone = !after || wide.includes(this.line[closing - 1]);
      return !isAlone || matchAt(this.rules.continuation, after, 0) !== null;
    }
    return !(narrow + wide).includes(this.line[closing - 1]);
  }

  /** Whether a sentence may end with the quotation that is a part of it. */
  endsWithQuotation(end, bracketEnd) {
    const closes = "」』".includes(this.line[bracketEnd]) && end > bracketEnd;
    return closes && !/^[「『]/.test(this.line.slice(end, end + 1));
  }

  endsHere(match, end, first) {
    if (end === this.line.length) return true;
    if (match.groups.wide) return this.wideStopEnds(match, end, first);
    const after = matchAt(this.rules.after, this.line, end).groups;
    const { item } = this.rules;
    if (matchAt(item, this.line, first) && matchAt(item, this.line, end)) return true;
    // "iPhone" begins sentences, "and" does not.
    if (this.isCased && isLower(after.word) && !/\p{Uppercase}/u.test(after.word)) return false;
    // "!" ends one, and so does a full stop with a quotation or brackets.
    if (stripEnd(match[0]) !== ".") return true;
    return this.wordEnds(first, match.index, after);
  }

  /** Whether a stop in a script without spaces ends a sentence: not in "行け！と叫んだ". */
  wideStopEnds(match, end, first) {
    const { wide } = match.groups;
    const whole = stripEnd(match[0]);
    const before = this.line.slice(first, Math.min(first + 9, match.index));
    if (wide === "．" && this.isNumber(before)) return false; // "１．箱を開ける。"
    if (whole !== match[0] || (whole === wide && "。｡．".includes(whole[0]))) return true;
    const { quoting, continuation } = this.rules;
    return matchAt(whole === wide ? quoting : continuation, this.line, end) === null;
  }

  /** Whether the word before a full stop ends its sentence. */
  wordEnds(first, stop, { word: following, stop: dot }) {
    const { rules, words } = this;
    const isStarter = words.starters.has(following.toLowerCase());
    const starts = isStarter && !(following.length === 1 && dot);
    const window = this.line.slice(Math.max(0, stop - WINDOW), stop);
    const [before, token] = isSpace(window.slice(-1)) ? ["", ""] : ["", "", ...split(window)].slice(-2);
    if (!token || /[/@=%]/.test(token)) return true;
    const found = rules.wordBefore.exec(window)?.[0] ?? "";
    const word = found.replace(SPACED_STOP, ".").replace(/^['’-]+|['’-]+$/g, "");
    const [lower, isNumber] = [word.toLowerCase(), this.isNumber(word)];
    if (first + word.length >= stop && isNumber) return false; // "1. Open the box."
    const numberFollows = rules.digit.test(following) || rules.roman.test(following);
    const last = lower.split(/[.'’]/).at(-1);
    if (words.beforeNumber.has(last) && numberFollows && !starts) return false;
    const previous = before.replace(/\.+$/, "").toLowerCase();
    if (isNumber && words.beforeNumber.has(previous)) return true;
    if (words.nonbreaking.has(word) || words.nonbreaking.has(lower)) return false;
    if (words.listsEnd.has(lower)) return !numberFollows;
    const isInitial = ONE_LETTER.test(word);
    const afterDigit = rules.digit.test([...before].at(-1) ?? "");
    if (isInitial && isLower(word) && afterDigit && !dot) return true; // "5 h.", but "753 v. Chr."
    const isOrdinal = words.ordinals && isNumber;
    const mayEnd = isInitial || isOrdinal || rules.dotted.test(word) || words.mayEnd.has(word);
    return mayEnd ? starts : true;
  }

  /** Whether a word may count or order: 12, XIV, or the letter of a list. */
  isNumber(word) {
    const text = strip(word);
    return ONE_LETTER.test(text) || this.rules.number.test(text) || this.rules.roman.test(text);
  }
}

/** Find the closing bracket of each opening one that has one. */
function pairBrackets(line, brackets) {
  const pairs = new Map();
  const waiting = {};
  for (let index = 0; index < line.length; index++) {
    const closing = brackets[line[index]];
    if (closing) (waiting[closing] ??= []).push(index);
    else if (waiting[line[index]]?.length) pairs.set(waiting[line[index]].pop(), index);
  }
  return pairs;
}

// Translates lines as `seq2seq translate --sentences` does, in a browser or in Node.

import { upperCase } from "./capitals.js";
import { Model } from "./decoder.js";
import { END, Pieces } from "./pieces.js";
import { strip } from "./text.js";
import { beamSearch } from "./search.js";
import { joinTexts, makeSegments } from "./segments.js";

/**
 * Open an exported folder. `ort` is ONNX Runtime, `Tokenizer` the class of @huggingface/tokenizers,
 * and `read` returns the bytes of a file of the folder.
 */
export async function load(ort, Tokenizer, read) {
  const open = async (name, make) => {
    try {
      return await make(await read(name));
    } catch (error) {
      throw new Error(`${name} can't be loaded (${error.message}): is the folder complete?`);
    }
  };
  const parse = (bytes) => new Response(bytes).json();
  const start = (bytes) => ort.InferenceSession.create(bytes);
  const settings = await open("translator.json", parse);
  prepare(settings);
  const [tokenizer, encoder, decoder] = await Promise.all([
    open("tokenizer.json", parse),
    open(settings.files.encoder, start),
    open(settings.files.decoder, start),
  ]);
  const pieces = new Pieces(new Tokenizer(tokenizer, { clean_up_tokenization_spaces: false }), settings);
  return new Translator(new Model(ort, encoder, decoder), pieces, settings);
}

/** Make regular expressions of the rules, and sets of the words. */
export function prepare({ rules, words }) {
  const compile = (rule) => (Array.isArray(rule[0]) ? rule.map(compile) : new RegExp(...rule));
  for (const name in rules) rules[name] = compile(rules[name]);
  for (const name in words) {
    if (Array.isArray(words[name])) words[name] = new Set(words[name]);
  }
}

class Translator {
  constructor(model, pieces, settings) {
    Object.assign(this, { model, pieces, settings });
  }

  /**
   * Translate a line into the language `to`, by default the first. `beforeStep` is awaited before
   * each step of the search; what it throws ends it.
   */
  async translate(line, { to, beam = this.settings.model.beam_size, sentences = true, beforeStep } = {}) {
    const { alpha, target_languages: controls } = this.settings.model;
    const language = to ?? Object.keys(controls)[0];
    if (!Object.hasOwn(controls, language)) {
      throw new Error(`no language ${language}: there is ${Object.keys(controls).join(", ")}`);
    }
    const text = line.replaceAll("\0", "\ufffd");
    const segments = makeSegments(text, this.pieces, this.settings, sentences);
    const texts = [];
    for (const { ids, limit, isInCapitals } of segments) {
      if (ids.length === 0) {
        texts.push("");
        continue;
      }
      const step = await this.model.begin([...controls[language], ...ids, END]);
      const output = await beamSearch(
        async (tokens, parents) => {
          await beforeStep?.();
          return step(tokens, parents);
        },
        limit,
        { beam, alpha },
      );
      const translation = this.pieces.decode(output.ids);
      texts.push(strip(isInCapitals ? upperCase(translation, language, this.settings.rules) : translation));
    }
    return joinTexts(segments, texts);
  }
}

// Runs a part of the exported page in Node: `node page.mjs PART` reads JSON and writes JSON.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const PAGE = new URL("../../seq2seq/interop/page/", import.meta.url);
const load = (name) => import(new URL(name, PAGE));

const PARTS = {
  /**
   * The segments of lines, by a tokenizer whose pieces are some words and letters, and the lines
   * joined of their numbers: by sentence, and not.
   */
  async segments({ settings, words, letters, lines }) {
    const { makeSegments, joinTexts } = await load("segments.js");
    const { prepare } = await load("translator.js");
    const { Pieces } = await load("pieces.js");
    const wordIds = new Map(words.map((word, i) => [word, 4 + i]));
    const pattern = new RegExp([...words, "[^]"].join("|"), "gu");
    const idOf = (piece) => {
      if (wordIds.has(piece)) return wordIds.get(piece);
      return letters.includes(piece) ? 4 + words.length + piece.codePointAt(0) : 1;
    };
    const encode = (text) => ({ ids: (text.match(pattern) ?? []).map(idOf) });
    prepare(settings);
    const tokens = new Map([[1, "<unk>"], [idOf("☀"), "<0xE2>"]]);
    const id_to_token = (id) => tokens.get(id) ?? "a";
    const pieces = new Pieces({ encode, id_to_token }, settings);
    return lines.map((line) =>
      [true, false].map((bySentence) => {
        const segments = makeSegments(line, pieces, settings, bySentence);
        return { segments, joined: joinTexts(segments, [...segments.keys()].map(String)) };
      }),
    );
  },

  /** The joined lines of segments and translations. */
  async join({ lines }) {
    const { joinTexts } = await load("segments.js");
    return lines.map(([segments, texts]) => joinTexts(segments, texts));
  },

  async matches({ patterns, texts }) {
    const compiled = patterns.map((pattern) => new RegExp(...pattern));
    return compiled.map((pattern) =>
      texts.map((text) => [...text.matchAll(pattern)].map((match) => match[0])),
    );
  },

  async normalize({ texts }) {
    const { normalize } = await load("pieces.js");
    return texts.map(normalize);
  },

  /** The best output over each table of the logits after each prefix. */
  async search({ tables, limit, options }) {
    const { beamSearch } = await load("search.js");
    const outputs = [];
    for (const table of tables) {
      let prefixes = [[]];
      const step = async (tokens, parents) => {
        prefixes = parents.map((parent, i) => [...prefixes[parent], tokens[i]]);
        return Float32Array.from(prefixes.flatMap((prefix) => table[prefix.slice(1)]));
      };
      outputs.push(await beamSearch(step, limit, options));
    }
    return outputs;
  },

  /**
   * The ids of sources by the tokenizer of a folder, whether its vocabulary lacks them, and the
   * texts of outputs.
   */
  async pieces({ folder, nodeModules, texts, outputs }) {
    const url = pathToFileURL(`${nodeModules}/@huggingface/tokenizers/dist/tokenizers.min.mjs`);
    const { Tokenizer } = await import(url);
    const { prepare } = await load("translator.js");
    const { Pieces } = await load("pieces.js");
    const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`));
    const settings = read("translator.json");
    prepare(settings);
    const tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
    const pieces = new Pieces(tokenizer, settings);
    return {
      ids: texts.map((text) => pieces.encode(text)),
      lacking: texts.map((text) => pieces.lacks(text)),
      decoded: outputs.map((ids) => pieces.decode(ids)),
    };
  },

  /** The translations of lines by a folder, with the libraries that its page runs. */
  async translate({ folder, nodeModules, lines, options }) {
    const library = (path) => import(pathToFileURL(`${nodeModules}/${path}`));
    const ort = await library("onnxruntime-web/dist/ort.wasm.bundle.min.mjs");
    const { Tokenizer } = await library("@huggingface/tokenizers/dist/tokenizers.min.mjs");
    const wasm = `${nodeModules}/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm`;
    ort.env.wasm.wasmBinary = await readFile(wasm);
    ort.env.wasm.numThreads = 1;
    const translator = await (
      await load("translator.js")
    ).load(ort, Tokenizer, (name) => readFile(`${folder}/${name}`));
    const texts = [];
    for (const line of lines) texts.push(await translator.translate(line, options));
    return texts;
  },
};

const given = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(await PARTS[process.argv[2]](given)));

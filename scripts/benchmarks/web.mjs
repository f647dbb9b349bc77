// Translates lines by the modules of an exported page, twice: the first time, code is compiled.
// node web.mjs < job.json prints the milliseconds of processor time of the second time.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const { folder, nodeModules, lines, options } = JSON.parse(readFileSync(0, "utf8"));
const library = (path) => import(pathToFileURL(`${nodeModules}/${path}`));
const ort = await library("onnxruntime-web/dist/ort.wasm.bundle.min.mjs");
const { Tokenizer } = await library("@huggingface/tokenizers/dist/tokenizers.min.mjs");
const wasm = `${nodeModules}/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm`;
ort.env.wasm.wasmBinary = await readFile(wasm);
ort.env.wasm.numThreads = 1;

const { load } = await import(pathToFileURL(`${folder}/translator.js`));
const translator = await load(ort, Tokenizer, (name) => readFile(`${folder}/${name}`));
for (const line of lines) await translator.translate(line, options);
const began = process.cpuUsage();
for (const line of lines) await translator.translate(line, options);
const { user, system } = process.cpuUsage(began);
process.stdout.write(`${(user + system) / 1000}`);

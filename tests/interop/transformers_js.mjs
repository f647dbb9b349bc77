// Reads a job in JSON, and writes what transformers.js makes of an exported folder.
// node transformers_js.mjs NODE_FOLDER < job.json > answer.json
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname } from "node:path";

const library = createRequire(`${process.argv[2]}/`)("@huggingface/transformers");
const { folder, lines, longest, texts, outputs } = JSON.parse(readFileSync(0, "utf8"));
library.env.allowRemoteModels = false;
library.env.localModelPath = dirname(folder);

const answer = { translations: [], ids: [], decoded: [] };
const tokenizer = await library.AutoTokenizer.from_pretrained(basename(folder));
for (const text of texts) answer.ids.push(tokenizer.encode(text));
for (const ids of outputs) answer.decoded.push(tokenizer.decode(ids, { skip_special_tokens: true }));
if (lines.length) {
  const translate = await library.pipeline("translation", basename(folder), { device: "cpu" });
  for (const line of lines) {
    const max_new_tokens = tokenizer.encode(line).length - 1 + longest;
    answer.translations.push((await translate(line, { max_new_tokens }))[0].translation_text);
  }
}
process.stdout.write(JSON.stringify(answer));

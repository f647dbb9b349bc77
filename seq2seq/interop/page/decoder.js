// The model in ONNX Runtime: the encoder once for a sentence, the decoder once for each token.

export class Model {
  constructor(ort, encoder, decoder) {
    Object.assign(this, { ort, encoder, decoder });
    this.pasts = decoder.inputMetadata.filter(({ name }) => name.startsWith("past_key_values"));
  }

  /** Encode a source, and return the step function of its search. */
  async begin(ids) {
    const source = [1, ids.length];
    const mask = this.integers(Array(ids.length).fill(1), source);
    const inputs = { input_ids: this.integers(ids, source), attention_mask: mask };
    const { last_hidden_state } = await this.encoder.run(inputs);
    const memory = { encoder_hidden_states: last_hidden_state, encoder_attention_mask: mask };
    const caches = {};
    for (const { name, shape } of this.pasts) {
      caches[name] = this.floats(new Float32Array(0), [1, shape[1], 0, shape[3]]);
    }
    return (tokens, parents) => this.step(tokens, parents, memory, caches);
  }

  /** Compute the logits after the newest tokens, and keep keys and values in the caches. */
  async step(tokens, parents, memory, caches) {
    for (const name in caches) {
      // The source's keys and values are one row, which all hypotheses share.
      if (name.includes(".decoder.")) caches[name] = this.rows(caches[name], parents);
    }
    const inputs = { input_ids: this.integers(tokens, [tokens.length, 1]), ...memory, ...caches };
    const outputs = await this.decoder.run(inputs);
    for (const name in caches) caches[name] = outputs[name.replace("past_key_values", "present")];
    return outputs.logits.data;
  }

  /** Make row i of a tensor its row parents[i]. */
  rows(tensor, parents) {
    const [count, ...rest] = tensor.dims;
    if (parents.length === count && parents.every((parent, i) => parent === i)) return tensor;
    const size = tensor.data.length / count;
    const data = new Float32Array(size * parents.length);
    parents.forEach((parent, i) => {
      data.set(tensor.data.subarray(parent * size, (parent + 1) * size), i * size);
    });
    return this.floats(data, [parents.length, ...rest]);
  }

  integers(values, dims) {
    return new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
  }

  floats(data, dims) {
    return new this.ort.Tensor("float32", data, dims);
  }
}

// Text to ids of sub-word pieces and back, by the rules of the program's tokenizer.

export const [PADDING, UNKNOWN, START, END] = [0, 1, 2, 3];

// Characters that SentencePiece's normal form nmt_nfkc leaves out, and those that become a space
const REMOVED = /[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f\u061c]/g;
const BLANK = /[\t\n\f\r\u1680\u200b\u200c\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd]/g;

export class Pieces {
  /** `tokenizer` is a Tokenizer of @huggingface/tokenizers, made from the folder's file. */
  constructor(tokenizer, { rules, vocabulary }) {
    Object.assign(this, { tokenizer, unseen: rules.unseen, ...vocabulary });
  }

  /**
   * Return the ids of a source, without the end symbol. Unseen characters that the vocabulary
   * lacks are left out; NFKC is read where it has fewer unknown pieces.
   */
  encode(text) {
    const read = text.replace(this.unseen, (character) =>
      countUnknown(this.ids(character)) ? "" : character,
    );
    const ids = this.ids(read);
    if (!this.nfkc || !ids.includes(UNKNOWN)) return ids;
    const normalized = this.ids(normalize(read));
    return countUnknown(normalized) < countUnknown(ids) ? normalized : ids;
  }

  /** Whether the vocabulary has nothing but single bytes for a part of a text. */
  lacks(text) {
    return this.encode(text).some((id) => /^<(unk|0x)/.test(this.tokenizer.id_to_token(id)));
  }

  ids(text) {
    const { ids } = this.tokenizer.encode(text.toWellFormed(), { add_special_tokens: false });
    return ids.map((id) => (id < this.size ? id : UNKNOWN));
  }

  decode(ids) {
    return ids.length ? this.tokenizer.decode(ids, { skip_special_tokens: true }) : "";
  }
}

export const countUnknown = (ids) => ids.filter((id) => id === UNKNOWN).length;

/** SentencePiece's normal form nmt_nfkc. */
export function normalize(text) {
  const blanks = text.toWellFormed().replace(REMOVED, "").replace(BLANK, " ");
  // The full-width tilde stays: in Japanese it is not the narrow one.
  const parts = blanks.split("\uff5e").map((part) => part.normalize("NFKC"));
  return parts.join("\uff5e").replace(/ +/g, " ").replace(/^ | $/g, "");
}

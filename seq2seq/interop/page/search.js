// Beam search with the length penalty of Wu et al. (2016), as section 6.1 of the paper uses it.

import { END, PADDING, START } from "./pieces.js";

const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

/**
 * Find the best output of a sentence, of at most `limit` tokens without the one that ends it.
 *
 * `step` maps the newest token of each live hypothesis, and the index of its parent among those
 * before, to their logits, one row after the other.
 */
export async function beamSearch(step, limit, { beam, alpha }) {
  let live = [{ score: 0, ids: [START] }];
  let parents = [0];
  let finished = []; // the best first
  for (let length = 1; ; length++) {
    const logits = await step(live.map(({ ids }) => ids.at(-1)), parents);
    // At most half of the candidates end, so the beam stays full; greedy search takes the best.
    const found = candidates(logits, live, beam > 1 ? 2 * beam : 1, length > limit);
    for (const { score, parent, token } of found) {
      if (token !== END) continue;
      finished.push({ score: score / lengthPenalty(length, alpha), ids: live[parent].ids.slice(1) });
    }
    finished = finished.sort((a, b) => b.score - a.score).slice(0, beam);
    const next = found.filter(({ token }) => token !== END).slice(0, beam);
    // At best, a live hypothesis reaches the limit with the log-probability that it has now.
    const attainable = next.length ? next[0].score / lengthPenalty(limit + 1, alpha) : -Infinity;
    if (!(attainable > (finished[0]?.score ?? -Infinity))) break;
    parents = next.map(({ parent }) => parent);
    live = next.map(({ score, parent, token }) => ({ score, ids: [...live[parent].ids, token] }));
  }
  if (finished.length === 0) throw new Error("The model predicts no token: its weights are corrupt.");
  return finished[0];
}

/** The best continuations of all live hypotheses, the best first; at the limit, those that end. */
function candidates(logits, live, count, isFull) {
  const size = logits.length / live.length;
  const best = [];
  let least = -Infinity; // of the best, once there are enough
  live.forEach((hypothesis, parent) => {
    const row = logits.subarray(parent * size, (parent + 1) * size);
    const base = hypothesis.score - logSumExp(row);
    for (let token = 0; token < size; token++) {
      const score = base + row[token];
      if (!(score > least) || token === PADDING || token === START) continue;
      if (isFull && token !== END) continue;
      let place = best.length;
      while (place > 0 && best[place - 1].score < score) place--;
      best.splice(place, 0, { score, parent, token });
      if (best.length > count) best.pop();
      if (best.length === count) least = best[count - 1].score;
    }
  });
  return best;
}

function logSumExp(row) {
  let largest = -Infinity;
  for (const logit of row) if (logit > largest) largest = logit;
  let sum = 0;
  for (const logit of row) sum += Math.exp(logit - largest);
  return largest + Math.log(sum);
}

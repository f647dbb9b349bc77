"""Text in, text out: encode, search, decode (section 6.1)."""

import copy
from collections.abc import Callable, Sequence

import torch

from seq2seq.corpus import control_ids
from seq2seq.device import Compute
from seq2seq.model_folder import TrainedModel
from seq2seq.search import Engine, SearchConfig, SearchInput
from seq2seq.tokenizer import END_ID

_BATCH_TOKENS = 2048


class PlainTranslator:
    """Translates lines as they are, each as one sentence.

    `seq2seq.Translator` divides lines into sentences and columns, and is faster.
    """

    def __init__(self, trained: TrainedModel, compute: Compute, search: SearchConfig) -> None:
        self.trained, self.search = trained, search
        model = copy.deepcopy(trained.model).to(compute.device, compute.dtype).eval()
        self.engine = Engine(model)

    @torch.inference_mode()
    def translate(
        self,
        lines: Sequence[str],
        *,
        to: str | None = None,
        on_batch: Callable[[int, int], None] = lambda done, lines: None,
    ) -> list[str]:
        """Translate lines into the model's language, or one of its several; blank ones stay blank.

        `on_batch` is called after each batch, with how many lines are translated, and of how many.
        """
        tokenizer = self.trained.tokenizer
        controls = control_ids(tokenizer.controls, to, None, self.trained.target_language)
        sources = tokenizer.encode_source([line.strip() for line in lines])
        # The longest first: a batch is as wide as its first line.
        order = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -len(sources[i]))
        translations, done = [""] * len(lines), 0
        while done < len(order):
            count = max(1, _BATCH_TOKENS // len(sources[order[done]]))
            batch = order[done : done + count]
            inputs = [
                SearchInput(
                    [*controls, *sources[i], END_ID],
                    len(sources[i]) + self.search.max_extra_tokens,
                )
                for i in batch
            ]
            best = [hypotheses[0] for hypotheses in self.engine.search(inputs, self.search)]
            texts = tokenizer.decode([hypothesis.token_ids for hypothesis in best])
            for i, text in zip(batch, texts, strict=True):
                translations[i] = text
            done += len(batch)
            on_batch(done, len(order))
        return translations

"""Exported folders in ONNX Runtime and Hugging Face's tokenizers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID

onnx, onnxruntime, tokenizers = (
    pytest.importorskip(name, reason="an extra of the tests")
    for name in ("onnx", "onnxruntime", "tokenizers")
)


class Sessions:
    """The encoder and the decoder of a folder, with a thread each."""

    def __init__(self, folder: Path) -> None:
        self.encoder, self.decoder = (
            self._session(next(folder.glob(f"onnx/{name}*.onnx")))
            for name in ("encoder_model", "decoder_model_merged")
        )

    @staticmethod
    def _session(path: Path) -> Any:
        onnx.checker.check_model(path, full_check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def logits(self, source: NDArray[Any], target: NDArray[Any], *steps: int) -> NDArray[Any]:
        """Read the target (B, T) in steps of so many tokens: logits (B, T, V)."""
        state = self.begin(source)
        ends = np.cumsum(steps)
        return np.concatenate([self.read(part, state) for part in np.split(target, ends, 1)], 1)

    def begin(self, source: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Encode sources (B, S): the decoder's inputs, with an empty cache."""
        mask = (source != PADDING_ID).astype(np.int64)
        (memory,) = self.encoder.run(None, {"input_ids": source, "attention_mask": mask})
        cache = {}
        for each in self.decoder.get_inputs():
            if each.name.startswith("past_key_values"):
                _, heads, _, width = each.shape
                cache[each.name] = np.zeros((len(source), heads, 0, width), np.float32)
        return {"encoder_attention_mask": mask, "encoder_hidden_states": memory, **cache}

    def read(self, tokens: NDArray[Any], state: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """Read tokens (B, T), keep the cache in `state`, and return logits (B, T, V)."""
        names = [each.name for each in self.decoder.get_outputs()]
        logits, *present = self.decoder.run(None, {"input_ids": tokens, **state})
        for name, value in zip(names[1:], present, strict=True):
            state[name.replace("present", "past_key_values")] = value
        return logits

    def greedy(self, source_ids: list[int], longest: int) -> list[int]:
        """Return the most probable tokens, one after the other, without `</s>`."""
        state, output = self.begin(np.array([source_ids])), [START_ID]
        while len(output) <= longest:
            logits = self.read(np.array([[output[-1]]]), state)[0, -1]
            logits[[PADDING_ID, START_ID]] = -np.inf
            if (token := int(logits.argmax())) == END_ID:
                break
            output.append(token)
        return output[1:]


def translate_folder(folder: Path, lines: list[str], to: str, *, longest: int = 10) -> list[str]:
    """Translate by greedy search over the files of a folder alone."""
    sessions = Sessions(folder)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "config.json").read_text())["seq2seq"]
    texts = []
    for line in lines:
        ids = tokenizer.encode(line).ids
        source = [*settings["target_languages"][to], *ids]
        texts.append(tokenizer.decode(sessions.greedy(source, len(ids) - 1 + longest)).strip())
    return texts


def translate(
    trained: TrainedModel, lines: list[str], to: str | None = None, *, longest: int = 10
) -> list[str]:
    """Translate by this program's greedy search."""
    search = SearchConfig(beam_size=1, max_extra_tokens=longest)
    options = TranslationOptions(device="cpu", search=search, to=to)
    return [found.text for found in Translator(trained, options).translate(lines)]

"""Marian's own archives: the same model under other names, and CTranslate2's reading of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.config import Start
from seq2seq.errors import UserError
from seq2seq.interop.marian_folder import parse_yaml
from seq2seq.interop.marian_import import import_marian
from seq2seq.zoo.variants import concatenated_sinusoids
from tests.interop.conftest import MakeFolder, MarianFolder, greedy
from tests.interop.test_marian_import import assert_same_logits

pytestmark = pytest.mark.filterwarnings("ignore")

SETTINGS = {
    "type": "transformer",
    "transformer-heads": 4,
    "dim-emb": 16,
    "transformer-dim-ffn": 24,
    "transformer-decoder-dim-ffn": 0,
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-no-projection": "false",
    "transformer-guided-alignment-layer": "last",
    "transformer-tied-layers": "[]",
    "tied-embeddings-all": "true",
    "version": "v1.9.0 6f6d4846",
}


RENAMED = {
    "self_attn_layer_norm": "self_Wo_ln",
    "encoder_attn_layer_norm": "context_Wo_ln",
    "final_layer_norm": "ffn_ffn_ln",
    r"ln\.weight": "ln_scale",
    r"ln\.bias": "ln_bias",
    r"self_attn\.": "self_",
    r"encoder_attn\.": "context_",
    r"([qkv]|o)(ut)?_proj\.weight": r"W\1",
    r"([qkv]|o)(ut)?_proj\.bias": r"b\1",
    r"fc(.)\.weight": r"ffn_W\1",
    r"fc(.)\.bias": r"ffn_b\1",
}


def arrays(model: Any) -> dict[str, np.ndarray]:
    """The parameters of a `MarianMTModel` under Marian's names: a matrix is read by columns."""
    encoder, decoder = model.model.encoder, model.model.decoder
    found = {"decoder_ff_logit_out_b": model.final_logits_bias}
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        for number, layer in enumerate(stack.layers, start=1):
            for name, value in layer.named_parameters():
                for theirs, own in RENAMED.items():
                    name = re.sub(theirs, own, name)
                found[f"{side}_l{number}_{name}"] = value.T if value.dim() == 2 else value[None]
    if model.config.tie_word_embeddings:
        found["Wemb"] = encoder.embed_tokens.weight
    else:
        found["encoder_Wemb"] = encoder.embed_tokens.weight
        found["decoder_Wemb"] = decoder.embed_tokens.weight
        found["decoder_ff_logit_out_W"] = model.lm_head.weight.T
    return {n: np.ascontiguousarray(v.detach().numpy(), np.float32) for n, v in found.items()}


def write_own(made: MarianFolder, folder: Path, **changes: object) -> Path:
    """Marian's folder of a model; without `<pad>`, which Marian does not have."""
    folder.mkdir()
    vocabulary = json.loads((made.path / "vocab.json").read_text())
    padding = vocabulary.pop("<pad>")
    kept = [i for i in range(len(vocabulary) + 1) if i != padding]
    ids = {piece: kept.index(i) for piece, i in vocabulary.items()}
    found = arrays(made.model)
    for name in found:
        if name.endswith("Wemb"):
            found[name] = found[name][kept]
        if name.startswith("decoder_ff_logit_out"):
            found[name] = found[name][:, kept]
    layers = {"enc-depth": made.model.config.encoder_layers}
    layers["dec-depth"] = made.model.config.decoder_layers
    lines = [f"{k}: {v}" for k, v in (SETTINGS | layers | changes).items()]
    text = "\n".join([*lines, "dim-vocabs:", "  - 10", "  - 10", "\0"])
    found["special:model.yml"] = np.frombuffer(text.encode(), np.int8)
    np.savez(folder / "model.npz", **found)
    yaml = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for piece, i in ids.items())
    (folder / "opus.vocab.yml").write_text(yaml)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((made.path / name).read_bytes())
    return folder


@pytest.mark.parametrize(
    "kind",
    [{}, {"encoder_layers": 3, "activation_function": "relu"},
     {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}],
    ids=str,
)  # fmt: skip
def test_logits_are_those_of_the_same_weights_in_transformers(
    make_folder: MakeFolder, kind: dict[str, Any], tmp_path: Path
) -> None:
    made = make_folder(**kind)
    activation = made.model.config.activation_function
    own = write_own(made, tmp_path / "own", **{"transformer-ffn-activation": activation})
    sinusoids = concatenated_sinusoids(128, 16)
    for stack in (made.model.model.encoder, made.model.model.decoder):
        stack.embed_positions.weight = torch.nn.Parameter(sinusoids, requires_grad=False)
    for module in made.model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-9  # Marian's own
    trained = import_marian(own)
    assert trained.model.config.start is Start.zero
    assert_same_logits(trained, made, 1e-9)


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
def test_greedy_outputs_are_those_of_ctranslate2(
    make_folder: MakeFolder, activation: str, sentences: list[str], tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    made = make_folder(seed=3, pieces=())
    own = write_own(made, tmp_path / "own", **{"transformer-ffn-activation": activation})
    trained = import_marian(own)
    # It reads the positions from the archive, if they are there.
    with np.load(own / "model.npz") as found:
        content = dict(found) | {"Wpos": concatenated_sinusoids(200, 16).numpy().astype("f4")}
    np.savez(tmp_path / "positions.npz", **content)
    npz, yaml = str(tmp_path / "positions.npz"), str(own / "opus.vocab.yml")
    converter = ctranslate2.converters.MarianConverter(npz, [yaml, yaml])
    converter.convert(str(tmp_path / "ct2"))
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    lines = sentences[::9]
    sources = [trained.tokenizer.source_pieces(ids) for ids in trained.tokenizer.encode(lines)]
    results = theirs.translate_batch(sources, beam_size=1, max_decoding_length=11)
    assert greedy(trained, lines, 11) == [result.hypotheses[0] for result in results]


def test_pieces_are_read_from_any_kind_of_quotes() -> None:
    text = (
        '---\n"</s>": 0\n<unk>: 1\n\'it\'\'s\': 2\n"a \\"quote\\"": 3\n"\\x85": 4\n"\\u2581x": 5\n'
        '? "long"\n: 6\n"\\\\": 7\n":": 8\n\';\': 9\n",": 10\n"▁日": 11\nyes: 12\n<<: 13\r\n'
    )
    expected = ["</s>", "<unk>", "it's", 'a "quote"', "\x85", "▁x", "long", "\\"]
    found = parse_yaml(Path("v.yml"), text.encode(), dict[str, int])
    assert list(found) == [*expected, ":", ";", ",", "▁日", "yes", "<<"]
    assert list(found.values()) == list(range(14))


Change = Callable[[Path], None]


def rewrite(**changes: Any) -> Change:
    """Change arrays of the archive; None removes one."""

    def change(folder: Path) -> None:
        with np.load(folder / "model.npz", allow_pickle=True) as found:
            content = dict(found) | changes
        kept = {name: value for name, value in content.items() if value is not None}
        np.savez(folder / "model.npz", allow_pickle=True, **kept)

    return change


def setting(old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        with np.load(folder / "model.npz") as found:
            text = found["special:model.yml"].tobytes()
        assert old.encode() in text
        text = text.replace(old.encode(), new.encode())
        rewrite(**{"special:model.yml": np.frombuffer(text, np.int8)})(folder)

    return change


def write(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content) and None


REFUSED: dict[str, tuple[Change, str]] = {
    "a student": (setting("autoreg: self-attention", "autoreg: rnn"), "'rnn' - at .*autoreg"),
    "Pre-LN": (setting('preprocess: ""', "preprocess: n"), "'n' - at .*preprocess"),
    "no depth": (setting("enc-depth", "enc-death"), "missing required field `enc-depth`"),
    "a million layers": (setting("enc-depth: 2", "enc-depth: 1000000"), "at most 1,000"),
    "an activation": (setting("activation: swish", "activation: tanh"), "'tanh' - at .*activation"),
    "objects": (rewrite(Wemb=np.array([[print]], dtype=object)), "Wemb is corrupt: Object arrays"),
    "another shape": (rewrite(Wemb=np.ones((3, 16), "f4")), "should be"),
    "not a number": (rewrite(encoder_l1_self_bq=np.full((1, 16), np.nan, "f4")), "not finite"),
    "not an archive": (write("model.npz", b"PK\3\4 no archive"), "not an archive"),
    "two vocabularies": (write("de.vocab.yml", b""), "2 files .*both sides share.*Hugging Face's"),
    "a SentencePiece model as vocabulary": (
        lambda folder: (folder / "opus.vocab.yml").rename(folder / "vocab.spm") and None,
        r"0 files \*vocab\*\.yml: only one in YAML",
    ),
    "two models": (write("other.npz", b""), r"2 files \*.npz"),
    "a tag": (write("opus.vocab.yml", b"!!python/object:os.system x\n"), "has no <unk>"),
    "a tag at a piece": (
        write("opus.vocab.yml", b"a: !!python/object/apply:os.system [touch canary]\n"),
        "Expected `int`, got `null`",
    ),
    "an alias": (write("opus.vocab.yml", b"a: &x 1\nb: *x\n"), "Expected `int`, got `null`"),
    "deep nesting": (write("opus.vocab.yml", b"a: " + b"[" * 10**6), "nested too deeply"),
    "a hole": (write("opus.vocab.yml", b"</s>: 0\n<unk>: 5\n"), "each once"),
}


@pytest.mark.parametrize(("change", "complaint"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_such_model_is_refused_in_one_line(
    make_folder: MakeFolder, change: Change, complaint: str, tmp_path: Path
) -> None:
    own = write_own(make_folder(), tmp_path / "own")
    change(own)
    with pytest.raises(UserError, match=complaint) as error:
        import_marian(own)
    assert "\n" not in str(error.value)

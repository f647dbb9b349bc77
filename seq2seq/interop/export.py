"""Export to Hugging Face's Marian and to CTranslate2: folders for these programs.

Their beam search may choose differently: they divide a log-probability by length^length_penalty,
this package by ((5 + length) / 6)^alpha.
"""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.changes import changed_code
from seq2seq.config import Activation, Positions, Start
from seq2seq.errors import UserError
from seq2seq.files import write_folder
from seq2seq.interop import marian
from seq2seq.interop.marian import EMBEDDINGS
from seq2seq.interop.pair_tokenizer import SOURCE_MODEL, TARGET_MODEL, PairTokenizer
from seq2seq.model_folder import (
    TrainedModel,
    card_file,
    check_restorable,
    class_name,
    own_class,
    save_tensors,
)
from seq2seq.tokenizer import CONTROL_PIECES, END_ID, PADDING_ID, START_ID, UNKNOWN_ID, Tokenizer
from seq2seq.transformer import DecoderLayer, EncoderLayer, PositionalEncoding, Transformer
from seq2seq.zoo.variants import LearnedPositions


def write_marian(folder: Path, trained: TrainedModel, *, card: bytes | None = None) -> None:
    """Write a folder for `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained`."""
    config = trained.model.config
    check_class(trained)
    marian.check_expressible(config, "Marian")
    if config.positions is not Positions.sinusoidal:
        raise UserError(
            f"Marian has sinusoidal positions only: a model with {config.positions.value} positions"
            " can't be exported"
        )
    vocabularies = _tokenizer_files(trained.tokenizer)
    write_folder(
        folder,
        {
            "model.safetensors": partial(save_tensors, _marian_weights(trained.model)),
            "config.json": json_bytes(marian_config(trained)),
            "generation_config.json": json_bytes(GENERATION),
            "tokenizer_config.json": json_bytes(
                {
                    "tokenizer_class": "MarianTokenizer",
                    "source_lang": trained.source_language,
                    "target_lang": trained.target_language,
                    "unk_token": CONTROL_PIECES[UNKNOWN_ID],
                    "eos_token": CONTROL_PIECES[END_ID],
                    "pad_token": CONTROL_PIECES[PADDING_ID],
                    "separate_vocabs": "target_vocab.json" in vocabularies,
                }
            ),
            **vocabularies,
            **card_file(card),
        },
    )


def check_class(trained: TrainedModel) -> None:
    """Refuse layers that no other program has; those of a configuration are checked by it."""
    if (kind := own_class(trained.model)) is not None:
        raise UserError(f"the class {class_name(kind)} is yours: no other program computes it")
    check_restorable(trained)
    if changed := changed_code(trained.model):
        raise UserError(
            f"{', '.join(changed[:3])} changed: other programs have the paper's layers, so that a"
            " changed model can't be exported"
        )


def _tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    tables = {"vocab.json": tokenizer.source_pieces(list(range(tokenizer.source_vocab_size)))}
    if isinstance(tokenizer, PairTokenizer):
        models = tokenizer.files()
        files = {"source.spm": models[SOURCE_MODEL], "target.spm": models[TARGET_MODEL]}
        if tokenizer.config.separate_vocabularies:
            tables["target_vocab.json"] = tokenizer.pieces(list(range(tokenizer.vocab_size)))
    else:
        files = {"source.spm": tokenizer.model_bytes, "target.spm": tokenizer.model_bytes}
    for name, pieces in tables.items():
        files[name] = json_bytes({piece: i for i, piece in enumerate(pieces)})
    return files


def _marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights under Marian's names, with the features of all states in its order.

    The epsilon of Marian's norms is always 1e-5; for a model with 1e-6, logits differ by less than
    1e-4.
    """
    config = model.config
    order = marian.features_of_marian(config.d_model)
    weights = _vocabulary_weights(model, order)
    for layer in marian.layer_names(config):
        module = model.get_submodule(layer.name)
        assert isinstance(module, nn.Linear | nn.LayerNorm)
        bias = module.weight.new_zeros(len(module.weight)) if module.bias is None else module.bias
        weights[f"{layer.marian}.weight"] = marian.permute(module.weight, layer, order)
        weights[f"{layer.marian}.bias"] = marian.permute(bias, layer, order)
    return weights


def _vocabulary_weights(model: Transformer, order: Tensor) -> dict[str, Tensor]:
    """The matrices of the vocabulary and the output's bias.

    Marian has no start from zero, so that the row of `<s>` becomes zero; its logit, too, then would
    be zero, where it should never be chosen.
    """
    config = model.config
    bias = torch.zeros(model.vocab_size, dtype=model.output_matrix.dtype)
    if model.output_bias is not None:
        bias += model.output_bias.detach()
    target = model.target_embedding.weight.detach()[:, order]
    if config.start is Start.zero:
        target[START_ID] = 0.0
        bias[START_ID] = marian.NEVER
    weights = {marian.OUTPUT_BIAS: bias.unsqueeze(0)}
    if config.shared_embedding and config.tied_output:
        return {EMBEDDINGS["shared"]: target, **weights}
    weights[EMBEDDINGS["source"]] = model.embedding.weight[:, order]
    weights[EMBEDDINGS["target"]] = target
    if not config.tied_output:
        weights[EMBEDDINGS["output"]] = model.output_matrix[:, order]
    return weights


def marian_config(trained: TrainedModel) -> dict[str, Any]:
    """Describe a model as the configuration of a `MarianMTModel`."""
    config, tokenizer = trained.model.config, trained.tokenizer
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": tokenizer.source_vocab_size,
        "decoder_vocab_size": tokenizer.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_layers,
        "decoder_layers": config.decoder_depth,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation.value,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.relu_dropout,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.shared_embedding,
        "tie_word_embeddings": config.tied_output,
        "max_position_embeddings": tokenizer.max_source_tokens or marian.MAX_POSITIONS,
        **_IDS,
        "forced_eos_token_id": None,
    }


_IDS = {
    "pad_token_id": PADDING_ID,
    "bos_token_id": START_ID,
    "eos_token_id": END_ID,
    "decoder_start_token_id": START_ID,
}
GENERATION: dict[str, Any] = {
    **_IDS,
    "bad_words_ids": [[PADDING_ID], [START_ID]],
    "num_beams": 4,
    "length_penalty": 0.6,
    "max_length": 512,
}
"""Hugging Face's settings of a search."""


def json_bytes(content: dict[str, Any]) -> bytes:
    """Return the content of a file of settings."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def write_ctranslate2(folder: Path, trained: TrainedModel, *, card: bytes | None = None) -> None:
    """Write a CTranslate2 model folder, in float32."""
    write_folder(folder, ctranslate2_files(trained) | card_file(card))


def ctranslate2_files(trained: TrainedModel) -> dict[str, bytes]:
    """Make the files of a CTranslate2 model, in float32."""
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation as Written
    except ImportError:
        raise UserError("this export needs CTranslate2: pip install ctranslate2") from None
    model, config = trained.model, trained.model.config
    check_class(trained)
    marian.check_expressible(config, "CTranslate2")
    written = {
        Activation.relu: Written.RELU,
        Activation.swish: Written.SWISH,
        Activation.gelu: Written.GELU,
        Activation.quick_gelu: Written.GELUSigmoid,
    }
    spec = TransformerSpec.from_config(
        (config.num_layers, config.decoder_depth),
        config.num_heads,
        pre_norm=False,
        activation=written[config.activation],
    )
    spec.decoder.start_from_zero_embedding = config.start is Start.zero
    spec.config.add_attribute("layer_norm_epsilon", config.layer_norm_epsilon)
    _write_weights(spec, model)
    tokenizer = trained.tokenizer
    source_ids, target_ids = range(tokenizer.source_vocab_size), range(tokenizer.vocab_size)
    pieces = tokenizer.pieces(list(target_ids))
    spec.register_source_vocabulary(tokenizer.source_pieces(list(source_ids)))
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[UNKNOWN_ID]
    spec.config.eos_token = pieces[END_ID]
    spec.config.add_source_eos = True
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START_ID]
    spec.validate()
    with TemporaryDirectory() as temporary:
        spec.save(temporary)
        return {path.name: path.read_bytes() for path in Path(temporary).iterdir()}


def _write_weights(spec: Any, model: Transformer) -> None:
    # A shared matrix is saved once: CTranslate2 finds equal arrays.
    spec.encoder.embeddings[0].weight = _array(model.embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    spec.decoder.projection.weight = _array(model.output_matrix)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    if isinstance(model.positions, PositionalEncoding):
        positions = model.positions.compute(marian.MAX_POSITIONS, model.config.d_model)
    else:
        assert isinstance(model.positions, LearnedPositions)
        positions = model.positions.weight
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings = True
        side.position_encodings.encodings = _array(positions)
        for written, layer in zip(side.layer, stack.layers, strict=True):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            _write_layer(written, layer)


def _write_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    """Write a layer. CTranslate2 stacks w_q, w_k and w_v, in cross-attention w_k and w_v."""
    attention = layer.self_attention
    _write_linears(spec.self_attention.linear[0], attention.w_q, attention.w_k, attention.w_v)
    _write_linears(spec.self_attention.linear[1], attention.w_o)
    _write_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    if isinstance(layer, DecoderLayer):
        cross = layer.cross_attention
        _write_linears(spec.attention.linear[0], cross.w_q)
        _write_linears(spec.attention.linear[1], cross.w_k, cross.w_v)
        _write_linears(spec.attention.linear[2], cross.w_o)
        _write_norm(spec.attention.layer_norm, layer.cross_attention_norm)
    _write_linears(spec.ffn.linear_0, layer.feed_forward.inner)
    _write_linears(spec.ffn.linear_1, layer.feed_forward.outer)
    _write_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _write_linears(spec: Any, *linears: nn.Linear) -> None:
    spec.weight = _array(torch.cat([linear.weight for linear in linears]))
    if linears[0].bias is not None:
        spec.bias = _array(torch.cat([linear.bias for linear in linears]))


def _write_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(value: Tensor) -> Any:
    return value.detach().float().contiguous().numpy()

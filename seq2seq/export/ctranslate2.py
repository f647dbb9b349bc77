"""CTranslate2: a folder for `ctranslate2.Translator`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from seq2seq.data.tokenizer import END_ID, START_ID, UNKNOWN_ID
from seq2seq.errors import UserError
from seq2seq.export import LONGEST
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.config import Start
from seq2seq.model.embedding import LearnedPositions
from seq2seq.model.layers import DecoderLayer, EncoderLayer
from seq2seq.storage.atomic import new_folder
from seq2seq.storage.checkpoint import TrainedModel


def write_ctranslate2(folder: Path, trained: TrainedModel) -> None:
    """Write a model folder in float32.

    CTranslate2 compares hypotheses by log-probability / length^length_penalty, ours by
    ((5 + length) / 6)^alpha: with beam search the two may choose differently.

    Raises:
        UserError: CTranslate2 is not installed, or the model has what it has not.
    """
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError:
        raise UserError(
            "exporting to CTranslate2 needs it: pip install 'seq2seq[export]'"
        ) from None
    model, config = trained.model, trained.model.config
    if config.key_width != config.value_width or (
        config.key_width * config.num_heads != config.d_model
    ):
        raise UserError("CTranslate2's heads are d_model / num_heads wide: this model's are not")
    if config.start is not Start.symbol:
        raise UserError("CTranslate2 starts with a symbol's embedding: this model with zeros")
    spec = TransformerSpec.from_config(config.num_layers, config.num_heads, pre_norm=False)
    spec.config.add_attribute("layer_norm_epsilon", config.layer_norm_epsilon)
    positions = model.embedding.positions
    if isinstance(positions, LearnedPositions):
        table: Tensor = positions.weight
    else:
        table = positions.compute(LONGEST, config.d_model).to(model.embedding.weight)
    weight = _array(model.embedding.weight)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = weight
    spec.decoder.projection.weight = weight
    layers = ((spec.encoder, model.encoder), (spec.decoder, model.decoder))
    for side, ours in layers:
        side.scale_embeddings = model.embedding.scale
        side.position_encodings.encodings = _array(table)
        for written, layer in zip(
            side.layer, cast(Iterable[EncoderLayer | DecoderLayer], ours), strict=True
        ):
            _write_layer(written, layer)
    pieces = trained.tokenizer.pieces(list(range(model.vocab_size)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[UNKNOWN_ID]
    spec.config.eos_token = pieces[END_ID]
    spec.config.add_source_eos = True
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START_ID]
    spec.validate()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as whole:
        spec.save(str(whole))


def _write_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    attention = layer.self_attention
    _write_linear(spec.self_attention.linear[0], attention.projection)
    _write_linear(spec.self_attention.linear[1], attention.output)
    _write_norm(spec.self_attention.layer_norm, layer.after_self_attention.norm)
    if isinstance(layer, DecoderLayer):
        _write_memory_attention(spec.attention, layer.cross_attention)
        _write_norm(spec.attention.layer_norm, layer.after_cross_attention.norm)
    _write_linear(spec.ffn.linear_0, layer.feed_forward.inner)
    _write_linear(spec.ffn.linear_1, layer.feed_forward.outer)
    _write_norm(spec.ffn.layer_norm, layer.after_feed_forward.norm)


def _write_memory_attention(spec: Any, attention: MultiHeadAttention) -> None:
    weight, bias = attention.projection.weight, attention.projection.bias
    queries = slice(0, attention.query_size)
    others = slice(attention.query_size, None)
    for linear, rows in zip(spec.linear, (queries, others), strict=False):
        linear.weight = _array(weight[rows])
        if bias is not None:
            linear.bias = _array(bias[rows])
    _write_linear(spec.linear[2], attention.output)


def _write_linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight = _array(layer.weight)
    if layer.bias is not None:
        spec.bias = _array(layer.bias)


def _write_norm(spec: Any, layer: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(layer.weight), _array(layer.bias)


def _array(value: Tensor) -> Any:
    return value.detach().float().contiguous().numpy()

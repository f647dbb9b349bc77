"""Export to CTranslate2: a folder for `ctranslate2.Translator`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.data.tokenizer import END_ID, START_ID, UNKNOWN_ID
from seq2seq.errors import UserError
from seq2seq.files.atomic import write_folder
from seq2seq.interop.names import MAX_POSITIONS, check_expressible
from seq2seq.model import Transformer
from seq2seq.model.config import Activation, Start
from seq2seq.model.transformer import DecoderLayer, EncoderLayer, PositionalEncoding
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.zoo.variants import LearnedPositions


def write_ctranslate2(folder: Path, trained: TrainedModel) -> None:
    """Write a CTranslate2 model folder, in float32."""
    write_folder(folder, ctranslate2_files(trained))


def ctranslate2_files(trained: TrainedModel) -> dict[str, bytes]:
    """Make the files of a CTranslate2 model, in float32.

    Beam search may choose differently, because CTranslate2 divides a log-probability by
    length^length_penalty, and this package by ((5 + length) / 6)^alpha.
    """
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation as Written
    except ImportError:
        raise UserError("this export needs CTranslate2: pip install ctranslate2") from None
    model, config = trained.model, trained.model.config
    check_expressible(config, "CTranslate2")
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
    # One array for one matrix, which is saved once.
    uses = (model.embedding.weight, model.target_embedding.weight, model.output_matrix)
    arrays = {matrix: _array(matrix) for matrix in uses}
    spec.encoder.embeddings[0].weight = arrays[uses[0]]
    spec.decoder.embeddings.weight = arrays[uses[1]]
    spec.decoder.projection.weight = arrays[uses[2]]
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    if isinstance(model.positions, PositionalEncoding):
        positions = model.positions.compute(MAX_POSITIONS, model.config.d_model)
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
    own = layer.self_attention
    _write_linears(spec.self_attention.linear[0], own.w_q, own.w_k, own.w_v)
    _write_linears(spec.self_attention.linear[1], own.w_o)
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

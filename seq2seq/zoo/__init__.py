"""Models other than the paper's, made if a configuration asks for them.

| module | contents |
|---|---|
| `variants` | tensor2tensor's forms, learned positions, what imported models have |
| `modern` | what nine years changed in the layers |

`transformer.py` knows nothing of them; they are made of its parts.
"""

from seq2seq.model.config import Activation, Norm, NormPosition, Positions, TransformerConfig
from seq2seq.zoo.modern import ModernTransformer
from seq2seq.zoo.variants import VariantTransformer


def make_variant(
    config: TransformerConfig, init_std: float | None, **sizes: int
) -> VariantTransformer:
    """Make a model that is not the paper's."""
    kind = ModernTransformer if modern_choices(config) else VariantTransformer
    return kind(config, **sizes, init_std=init_std)


def modern_choices(config: TransformerConfig) -> list[str]:
    """Return the choices that only `modern` has, such as `norm=rms`."""
    choices = {
        "norm_position": config.norm_position is NormPosition.pre,
        "norm": config.norm is Norm.rms,
        "positions": config.positions is Positions.rotary,
        "activation": config.activation is Activation.swiglu,
        "num_kv_heads": config.num_kv_heads is not None,
        "bias": not config.bias,
    }
    values = {name: getattr(config, name) for name, is_modern in choices.items() if is_modern}
    return [f"{name}={getattr(v, 'value', v)}".lower() for name, v in values.items()]

"""What the paper doesn't have: models and encodings, made if a configuration asks for them.

| module | contents |
|---|---|
| `variants` | tensor2tensor's forms, learned positions, what imported models have |
| `modern` | what nine years changed in the layers |
| `bpe_dropout` | sub-word pieces by merges of which some are skipped |

The paper's files know nothing of them.
"""

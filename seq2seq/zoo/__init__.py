"""Options that the base model does not have, made if a configuration asks for them.

| module | contents |
|---|---|
| `variants` | tensor2tensor's forms, learned positions (Table 3), what imported models have |
| `modern` | what nine years changed in the layers |
| `bpe_dropout` | sub-word pieces by merges of which some are skipped |

The paper's files know nothing of them.
"""

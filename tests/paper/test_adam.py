"""The updates of training against the equations of Adam (5.3; Kingma and Ba 2015)."""

from pathlib import Path

import torch
from torch.nn.utils import parameters_to_vector

from seq2seq.batches import Batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.device import Compute
from seq2seq.model_folder import new_transformer
from seq2seq.trainer import Trainer
from seq2seq.update import Updater
from tests.toy import encoded_corpus, update

V, PAIRS = 60, 40


def test_updates_are_adam_s_without_clipping_and_decay(tmp_path: Path) -> None:
    corpus = encoded_corpus(tmp_path / "train.ids", V, PAIRS)
    batching = Batching(corpus, source_tokens=96, target_tokens=96, seed=1)
    torch.manual_seed(1)
    config = TransformerConfig(num_layers=1, d_model=16, d_ff=24, num_heads=2)
    model = new_transformer(config, V).double()
    with torch.no_grad():
        model.embedding.weight.mul_(4)  # for gradients that clipping would change
    training = TrainingConfig(source_tokens=1, target_tokens=1, micro_batch_tokens=1)
    trainer = Trainer(Updater(model, batching, training, compute=Compute(), seed=1))
    parameters = list(model.parameters())
    gradients: dict[int, torch.Tensor] = {}
    for number, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda p, number=number: gradients.update({number: p.grad.clone()})
        )
    expected = parameters_to_vector(parameters).detach()
    first, second = torch.zeros_like(expected), torch.zeros_like(expected)
    for step, batch in enumerate(batching.epoch(0)[:3], start=1):
        trainer.progress.step = step - 1
        rate = update(trainer, [batch]).learning_rate
        gradient = parameters_to_vector([gradients[i] for i in range(len(parameters))])
        assert gradient.norm() > 3
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient.square()
        denominator = (second / (1 - 0.98**step)).sqrt() + 1e-9
        expected = expected - rate * first / (1 - 0.9**step) / denominator
        weights = parameters_to_vector(parameters).detach()
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-4 * rate)

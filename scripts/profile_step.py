"""Print where the time of a training step goes: the kernels of the base model, by their time.

The step is that of `seq2seq train` with the paper's token budget, on random tokens.
"""

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from seq2seq.data.batching import Batch
from seq2seq.device import Compute
from seq2seq.fast.joined import join
from seq2seq.fast.loss import can_compile, compiled_loss
from seq2seq.fast.training import TrainingKernels, use_training_kernels
from seq2seq.model import TransformerConfig
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.loss import BatchLoss
from seq2seq.training.optimizer import make_adam


def random_batch(tokens: int, length: int, vocab_size: int) -> Batch:
    """Make a batch of pairs of one length, whose last source is padded."""
    ids = torch.randint(4, vocab_size, (3, max(1, tokens // length), length))
    ids[0, -1, length // 2 :] = 0
    return Batch(*ids)


def main() -> None:
    """Run some steps, then profile one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=25_000, help="tokens of each side per step")
    parser.add_argument("--micro-batches", type=int, default=7, metavar="K")
    parser.add_argument("--length", type=int, default=28, help="tokens of a sentence")
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rows", type=int, default=40, help="kernels to print")
    parser.add_argument("--compile", action="store_true", help="compile parts of it")
    parser.add_argument("--packed", action="store_true", help="pack its attention")
    arguments = parser.parse_args()
    compute = Compute(torch.device(arguments.device), torch.bfloat16)
    device = compute.device
    on_gpu = device.type == "cuda"
    config = TransformerConfig(num_layers=arguments.layers)
    model = new_transformer(config, arguments.vocab_size).to(device).train()
    # The form for a GPU, which can be run on a CPU as well.
    compiled = arguments.compile and can_compile(device)
    use_training_kernels(model, TrainingKernels(compiled=compiled), Compute(torch.device("cuda")))
    of_chunk = compiled_loss() if compiled else None
    loss = BatchLoss(model, 0.1, chunked=True, chunk_loss_fn=of_chunk)
    adam = make_adam(model)
    share = arguments.tokens // arguments.micro_batches
    batch = join(
        [random_batch(share, arguments.length, arguments.vocab_size)] * arguments.micro_batches,
        packed=arguments.packed,
    ).to(device)

    def step() -> float:
        started = time.perf_counter()
        with compute.autocast():
            smoothed = loss(batch).smoothed
        (smoothed / arguments.tokens).backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    seconds = [step() for _ in range(10 if on_gpu else 1)]
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=kinds) as profiler:
        step()
    by = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=by, row_limit=arguments.rows))
    print(f"a step, unprofiled: {1000 * min(seconds):.1f} ms")


if __name__ == "__main__":
    main()

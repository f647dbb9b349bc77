"""The heartbeats of a training, of one process alone."""

import time

import pytest
from torch.distributed import HashStore

from seq2seq.training.distributed import Heartbeat


class SlowStore(HashStore):
    """Answers so late that a look at the others is under way when the training ends."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        time.sleep(0.5)
        return super().multi_get(keys)


@pytest.mark.parametrize("error", [None, ValueError], ids=str)
def test_the_thread_does_not_outlive_the_training(error: type[Exception] | None) -> None:
    heartbeat = Heartbeat(SlowStore(), 0, 1, 60.0, lambda: False, interval=0.2)
    try:
        with heartbeat:
            time.sleep(0.4)
            if error:
                raise error
    except ValueError:
        pass
    assert not heartbeat.thread.is_alive()

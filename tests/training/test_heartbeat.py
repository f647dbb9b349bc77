"""The watch over the processes of a training, one process alone with itself."""

import time

import pytest
from torch.distributed import HashStore

from seq2seq.training import heartbeat
from seq2seq.training.heartbeat import Heartbeat


class SlowStore(HashStore):
    """Answers so late that a look at the others is under way when the training ends."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        time.sleep(0.5)
        return super().multi_get(keys)


@pytest.mark.parametrize("error", [None, ValueError], ids=str)
def test_no_look_at_the_others_outlives_the_training(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.2)
    watch = Heartbeat(SlowStore(), 0, 1, 60.0, lambda: False)
    try:
        with watch:
            time.sleep(0.4)
            if error:
                raise error
    except ValueError:
        pass
    assert not watch.thread.is_alive()

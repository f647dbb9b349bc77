"""The program without what Windows lacks: tests of files, locks, training and server pass there."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
NOISE = "test_a_training_with_noise_subword_sampling_and_a_running_mean_is_resumed_bit_for_bit"
CHOSEN = [
    "cli/test_many.py::test_lines_that_came_after_the_last_are_another_text",
    "cli/test_serve.py::test_languages_keys_and_the_page_are_options",
    "cli/test_translate.py::test_white_space_and_line_ends_are_kept",
    "core/test_files.py",
    "core/test_system.py",
    "documents/test_folder.py",
    "run/test_lock.py",
    f"run/test_training_run.py::{NOISE}",
    "server/test_files.py::test_a_file_is_translated_and_fetched",
]


def test_without_what_windows_lacks_the_program_does_the_same(tmp_path: Path) -> None:
    without = [str(TESTS / "lacking"), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(without)}
    command = [sys.executable, "-m", "pytest", "-q", "--basetemp", tmp_path / "made"]
    command += [*map(TESTS.joinpath, CHOSEN), "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-5000:]

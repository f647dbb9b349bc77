"""The exported page in Node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

NODE = shutil.which("node")


def run_page(part: str, **given: Any) -> Any:
    """Run a part of the page, one of those in `page.mjs`."""
    driver = Path(__file__).with_suffix(".mjs")
    command = [str(NODE), driver, part]
    hour = 3600  # ends what would never end; 1,000 lines take minutes, more on a busy machine
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=hour
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

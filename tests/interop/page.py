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
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

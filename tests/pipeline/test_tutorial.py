"""The tutorial runs as it is printed, on both databases."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

TUTORIAL = Path(__file__).parents[2] / "examples" / "pipeline" / "tutorial.py"


def test_the_tutorial(url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(TUTORIAL)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "22 made" in done.stdout and "ValueError: the image has dead pixels" in done.stdout
    assert "2 made\n2 errors stay in the history" in done.stdout
    assert "Statistics [computed] 24 rows" in done.stdout
    assert len(ET.fromstring((tmp_path / "plot.svg").read_text()).findall("{*}circle")) == 24
    assert ET.fromstring((tmp_path / "pipeline.svg").read_text()).tag.endswith("svg")

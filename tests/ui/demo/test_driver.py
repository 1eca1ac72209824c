"""Where the driver of the demo leaves what it leaves behind when it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.ui.demo.driver import Driver

TELLS_ITS_JAVA_OPTIONS = """
import json, os, sys
print(json.dumps({"options": os.environ["SPARK_SUBMIT_OPTS"]}), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("options", ["", "-Dmine=1"])
def test_java_leaves_its_temporary_files_in_the_directory_of_the_demo(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "telling.py").write_text(TELLS_ITS_JAVA_OPTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", options)
    driver = Driver("telling", "", tmp_path)
    try:
        told = driver.next()
    finally:
        driver.kill()
    assert told is not None
    assert told["options"].startswith(options)
    assert told["options"].endswith(f'"-Djava.io.tmpdir={tmp_path}/scratch"')

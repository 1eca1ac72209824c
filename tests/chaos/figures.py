"""A run of `semel chaos` and the figures that it prints."""

import subprocess
import sys


def figures_of(*words: str) -> dict[str, str]:
    """What a run that has to succeed prints, by the names of the figures."""
    done = subprocess.run([sys.executable, "-m", "semel", "chaos", *words], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    return {name.strip(): value for name, value in (line.rsplit(None, 1) for line in done.stdout.splitlines())}

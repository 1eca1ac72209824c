"""The Python for Spark's processes on this machine: this one, with PySpark as it is installed.

Spark puts an archive of PySpark, `pyspark.zip`, in front of everything else on the path of each Python process that it
starts. Python keeps no compiled code of what is in an archive, so each of these processes compiles PySpark again, for
0.4 s of CPU: where a session begins, where a stream begins, and on a busy machine it takes longer than Spark waits. A
script leaves the archive out. This file must never make Spark run another PySpark than the archive's.
"""

import os
import shlex
import site
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# Spark's archives come first on the path: pyspark.zip, and py4j-...-src.zip.
_SCRIPT: Final = """\
#!/bin/sh
export PYTHONPATH="${{PYTHONPATH#*/pyspark.zip:*/py4j-*-src.zip:}}"
exec {executable} "$@"
"""


def python_for_spark(directory: Path) -> str:
    """The path of the script, which is written to this directory. The path of this Python where the archive's PySpark
    may be another one, or where no script can be run there."""
    if os.name != "posix" or not _is_the_installed_pyspark():
        return sys.executable
    script = directory / "python"
    script.write_text(_SCRIPT.format(executable=shlex.quote(sys.executable)))
    script.chmod(0o700)
    # On a file system that is mounted with `noexec` the answer is no.
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _is_the_installed_pyspark() -> bool:
    """Whether a Python without the archive imports the same PySpark: the one whose Spark runs, from a place that each
    process of this Python has on its path."""
    from pyspark.find_spark_home import _find_spark_home

    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    places = {Path(place).resolve() for place in (*site.getsitepackages(), *own)}
    py4j, pyspark = (Path(spec.origin or "").resolve().parent for spec in map(find_spec, ("py4j", "pyspark")) if spec)
    return pyspark == Path(_find_spark_home()).resolve() and {py4j.parent, pyspark.parent} <= places

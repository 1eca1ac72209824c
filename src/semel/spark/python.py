"""The Python for Spark's processes on this machine: this one, with PySpark as it is installed.

Spark puts an archive of PySpark, `pyspark.zip`, in front of everything else on the path of each Python process that it
starts. Python keeps no compiled code of what is in an archive, so each of these processes compiles PySpark again, for
0.4 s of CPU: where a session begins, where a stream begins, and on a busy machine it takes longer than Spark waits. A
script replaces the archive by the installed PySpark. This file must never make Spark run another PySpark than
the archive's.
"""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from semel.spark.scripts import is_word, kept, link, write_script

# In Python, because a shell drops the variables that it has no names for. The first line names the Python from which an
# environment was made, because the environment may lie in a directory with a space, which would end the line's path.
_SCRIPT: Final = '''\
{first_line}
"""Python with the installed PySpark instead of Spark's archives of it. Written by semel."""
import os
import sys

packages = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages")
path = []
for place in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    if not os.path.realpath(place).startswith({archives!r}):
        path.append(place)
    elif packages not in path:
        path.append(packages)
os.environ["PYTHONPATH"] = os.pathsep.join(path)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
'''
# A Linux before 5.1 reads no more of the first line of a script.
_FIRST_LINE_BYTES_MAX: Final = 127


class _Installed(NamedTuple):
    """The directories of the packages, and of the archives that have the same in them."""

    pyspark: Path
    py4j: Path
    archives: Path


def python_for_spark() -> str:
    """The path of the script. The path of this Python where the archive's PySpark may be another one, or where no
    script can be run."""
    installed = _installed()
    if installed is None:
        return sys.executable
    # An environment may have a copy of Python and not a link to it.
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    interpreter = (base if base.exists() else Path(sys.executable)).resolve()
    first_line = f"#!{interpreter} -IS"
    if not is_word(interpreter) or len(os.fsencode(first_line)) > _FIRST_LINE_BYTES_MAX:
        return sys.executable
    archives = f"{installed.archives}{os.sep}"
    text = _SCRIPT.format(first_line=first_line, python=sys.executable, archives=archives)

    def write(directory: Path) -> None:
        link(directory / "packages" / "pyspark", installed.pyspark)
        link(directory / "packages" / "py4j", installed.py4j)
        write_script(directory / "python", text)

    script = kept("python", f"{text}{installed}", write, in_a_word=True) / "python"
    # On a file system that is mounted with `noexec` it cannot be run.
    return str(script) if is_word(script) and os.access(script, os.X_OK) else sys.executable


def _installed() -> _Installed | None:
    """None if Spark's archives may have another PySpark than this process, or another py4j."""
    specs = [find_spec(name) for name in ("pyspark", "py4j")]
    pyspark, py4j = (Path(spec.origin or "").resolve().parent for spec in specs if spec is not None)
    # Elsewhere there may be no Spark at all, and then the search for one ends the program.
    if not (pyspark / "bin" / "spark-submit").is_file():
        return None
    from pyspark.find_spark_home import _find_spark_home

    archives = pyspark / "python" / "lib"
    try:
        has_this_py4j = (archives / f"py4j-{version('py4j')}-src.zip").is_file()
    except PackageNotFoundError:
        return None
    is_of_this_spark = Path(_find_spark_home()).resolve() == pyspark
    return _Installed(pyspark, py4j, archives) if has_this_py4j and is_of_this_spark else None

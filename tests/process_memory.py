"""The memory of another process, as Linux tells it."""

import re
from pathlib import Path


def memory_bytes(process_id: int, what: str = "VmRSS") -> int:
    """VmRSS is what a process holds now, VmHWM the most that it ever held."""
    found = re.search(rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{process_id}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024

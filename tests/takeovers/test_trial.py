"""Real clients copy by transactions over takeovers on each kind of store, and nothing is lost, doubled or disordered.

`make takeovers` makes it as long as it is to be believed: 100,000 records, 20 takeovers and 20 kills of each worker.
"""

from pathlib import Path

import pytest
from bench.peers.process import SkipReason

from takeovers.servers import SERVERS
from takeovers.trial import faulty_pair, run_trial

# So many that the copy does not end before all faults have struck.
RECORDS = 25_000
FAULTS = 6


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", SERVERS)
def test_a_copy_is_whole_over_every_kind_of_takeover(store: str, tmp_path: Path) -> None:
    try:
        with faulty_pair(tmp_path, SERVERS[store]) as pair:
            report = run_trial(pair, records=RECORDS, takeovers=FAULTS, seed=3, note=lambda _: None)
    except SkipReason as missing:
        pytest.skip(str(missing))
    assert report.violations == []
    assert report.copied == RECORDS
    assert len(pair.takeovers) + pair.store_kills == FAULTS

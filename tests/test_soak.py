"""A soak: honest and hostile traffic while processes are killed; and that its checks see faults."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from soak_record import findings
from soak_rig import Plan, Site, on_postgresql, on_sqlite, soak

SECONDS = float(os.environ.get("WHITELIE_SOAK_SECONDS", "1800"))
"""How long the long soak lasts on each store."""

LONG = Plan(seconds=SECONDS, calm=30, every=60, per_second=180, flood=48 << 20)

SITES = pytest.mark.parametrize("site_in", [on_sqlite, on_postgresql])
Opened = Callable[[Path], AbstractContextManager[Site]]


@pytest.mark.long
@SITES
def test_a_soak_loses_nothing_and_keeps_honest_visitors_waiting_for_nothing(
    site_in: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site_in(tmp_path) as site:
        figures, record, wrong = soak(site, LONG, tmp_path)
    faults = wrong + findings(record)
    with capsys.disabled():
        print(json.dumps({"soak": site_in.__name__, **figures, "faults": faults}))
    assert not faults

"""What a program exports at /metrics."""

from prometheus_client import generate_latest

from dispatcher import __version__
from dispatcher.runtime.health import Exported
from dispatcher.runtime.metrics import OF_ROWS, OF_RUN


def test_program_exports_no_metric_that_it_never_sets() -> None:
    """It would stand at 0 for ever: an alert for a missing database or a missing leader would fire."""
    everything, some = (generate_latest(Exported(never_set)).decode() for never_set in ((), (*OF_RUN, *OF_ROWS)))
    for name in ("dispatcher_database_up", "dispatcher_leader", "dispatcher_cycle_seconds_count"):
        assert f"\n{name} " in everything
        assert name not in some
    assert 'dispatcher_build_info{python="' in some
    assert f'version="{__version__}"' in some

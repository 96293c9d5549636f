"""Which tasks retain their outputs, so that recovery never takes longer than a bound (Li et al. 2017)."""

from tenax.planning.backups.facade import ALGORITHMS, plan_backups
from tenax.planning.backups.latency import recovery_latencies
from tenax.planning.backups.validator import check_backups

__all__ = ["ALGORITHMS", "check_backups", "plan_backups", "recovery_latencies"]

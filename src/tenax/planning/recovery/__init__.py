"""Which failed tasks come back first, so that the most important outputs return soonest (Su, Zhou 2021)."""

from tenax.planning.recovery.facade import ALGORITHMS, plan_recovery
from tenax.planning.recovery.schedule import schedule_recovery
from tenax.planning.recovery.validator import check_recovery, check_schedule

__all__ = ["ALGORITHMS", "check_recovery", "check_schedule", "plan_recovery", "schedule_recovery"]

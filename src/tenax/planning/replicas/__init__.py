"""Which tasks run a second time, so that outputs stay as good as the budget allows (Su, Zhou 2016)."""

from tenax.planning.replicas.facade import ALGORITHMS, plan_replicas
from tenax.planning.replicas.validator import check_replicas

__all__ = ["ALGORITHMS", "check_replicas", "plan_replicas"]

"""For tests of users: a topology run on frames without Spark, and the contracts that their own parts must keep."""

from tenax.errors import BrokenContract
from tenax.testing.computations import ComputationCheck, check_computation
from tenax.testing.frames import run
from tenax.testing.sinks import check_sink
from tenax.testing.sources import check_source

__all__ = ["BrokenContract", "ComputationCheck", "check_computation", "check_sink", "check_source", "run"]

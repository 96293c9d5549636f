"""What operators compute, in Polars: pure functions that know nothing of Spark."""

import os

# Polars' partitioned group-by adds floats in an order that changes from call to call, even with one thread; steps must
# be repeatable to the byte. It looks at this for every query.
os.environ["POLARS_NO_PARTITION"] = "1"

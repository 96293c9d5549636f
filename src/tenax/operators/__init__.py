"""What operators compute, in Polars: pure functions that know nothing of Spark."""

"""Fault-tolerant stream processing on Apache Spark."""

"""Failure handling: failover to replicas, rounds in which lost tasks catch up, attempts and backoff."""

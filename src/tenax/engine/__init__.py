"""Runs topologies: sources, sinks and the driver's store, and what carries a batch through them."""

"""Frozen data that all else is about: topologies and their tasks, clusters, plans, settings; validated when built."""

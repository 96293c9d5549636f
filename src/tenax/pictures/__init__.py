"""Pictures of topologies, plans and figures."""

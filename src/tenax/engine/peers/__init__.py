"""The sides of a comparison: each measures one system in a process of its own."""

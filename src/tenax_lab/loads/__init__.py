"""What experiments run: the chain of elements, the tree of merges, the queries on traffic and pages."""

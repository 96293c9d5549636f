"""What runs inside the Python workers of a node: steps of tasks, and the store of their states."""

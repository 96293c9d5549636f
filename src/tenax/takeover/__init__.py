"""Taking a store over: whether it is whole, whether it fits the code, and what a difference changes."""

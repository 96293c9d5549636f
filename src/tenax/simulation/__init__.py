"""The second driver of the coordinator: a virtual cluster in virtual time, seeded."""

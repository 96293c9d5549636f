"""The lab: the papers' evaluations and measurements of our own, beside the product."""

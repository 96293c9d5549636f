"""Names of `findings` and `lab`, for experiments that are still to be ported."""

from tenax_lab.findings import Cell, Claim, Findings, Machine, Result, Table, show
from tenax_lab.lab import NoProgress, Progress

__all__ = ["Cell", "Claim", "Findings", "Machine", "NoProgress", "Progress", "Result", "Table", "show"]

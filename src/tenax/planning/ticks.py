"""Exact sums of decimal numbers: floats as whole ticks, so that three times 0.1 is not more than 0.3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Floats, Ints

MAX_DECIMALS = 9
MAX_TOTAL = 2.0**53  # floats count whole ticks up to here
LARGEST_EXPONENT = 308


@dataclass(frozen=True, slots=True)
class Ticks:
    """A unit of 10^-decimals in which numbers are counted.

    - A number with at most that many decimals, as people write it, is represented exactly.
    - Any other is rounded by the caller's choice: `up` for what uses a bound, `down` for the bound itself, so that a
      bound kept in ticks is kept in truth.
    """

    decimals: int

    @classmethod
    def of(cls, *numbers: Floats | float) -> Ticks:
        """The coarsest unit that represents all of them, as far as floats can count sums of them."""
        values = np.concatenate([np.atleast_1d(np.asarray(number, dtype=np.float64)) for number in numbers])
        total = float(np.abs(values).sum())
        finest = MAX_DECIMALS
        while total * 10.0**finest > MAX_TOTAL and finest > -LARGEST_EXPONENT:
            finest -= 1
        for decimals in range(finest):
            if np.all(_is_exact(values, 10.0**decimals)):
                return cls(decimals)
        return cls(finest)

    @property
    def per_unit(self) -> float:
        """Ticks in 1."""
        return 10.0**self.decimals

    def up(self, numbers: Floats | float) -> Ints:
        """Numbers in ticks, rounded up where they are not exact."""
        values = np.asarray(numbers, dtype=np.float64)
        ticks = np.ceil(values * self.per_unit)
        return self._settled(values, np.where(ticks / self.per_unit < values, ticks + 1, ticks))

    def down(self, numbers: Floats | float) -> Ints:
        """Numbers in ticks, rounded down where they are not exact."""
        values = np.asarray(numbers, dtype=np.float64)
        ticks = np.floor(values * self.per_unit)
        return self._settled(values, np.where(ticks / self.per_unit > values, ticks - 1, ticks))

    def number(self, ticks: int) -> float:
        """Ticks as a number again."""
        return ticks / self.per_unit

    def _settled(self, values: Floats, rounded: Floats) -> Ints:
        """Whole ticks for the numbers that are such, and the rounded ones for all others."""
        nearest = np.rint(values * self.per_unit)
        return np.where(_is_exact(values, self.per_unit), nearest, rounded).astype(np.int64)


def _is_exact(values: Floats, per_unit: float) -> np.typing.NDArray[np.bool_]:
    """Whether each number is the float nearest to some whole number of ticks."""
    return np.asarray(np.rint(values * per_unit) / per_unit == values)

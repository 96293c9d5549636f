"""The driver of a run: what the coordinator decides, carried out on Spark and the store."""

from tenax.engine.driver.driver import Driver

__all__ = ["Driver"]

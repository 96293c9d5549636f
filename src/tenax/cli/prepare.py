"""`tenax prepare`: let runs start faster."""

from __future__ import annotations

from tenax.cli import render


def prepare_command() -> None:
    """Make Spark's classes ready once, so that runs start in half of the time: some seconds, and 70 MB of cache.

    They are kept in the cache of the user ($XDG_CACHE_HOME/tenax or ~/.cache/tenax), for this Spark and this Java; run
    it again when one of these has changed. Runs do without if they are not there.

    Example: tenax prepare
    """
    from tenax.engine.preparing import prepare

    path = prepare()
    render.console().print(f"[dim]ready[/dim] {path}, {path.stat().st_size / 1e6:.0f} MB", soft_wrap=True)

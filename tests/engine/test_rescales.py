"""What was made ready for a rescale counts for the version that it was made for."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tenax.application.application import Application
from tenax.engine.driver.rescales import Rescales
from tenax.engine.driver.switching import Prepared
from tenax.engine.protection import Protected
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.store.store import Store


def test_what_was_made_ready_before_another_switch_is_not_used(tmp_path: Path) -> None:
    store, target = Store.open(tmp_path / "store", {}), Target({"sums": 4}, cause="load")
    rescales = Rescales(store, lambda _: None)
    version = TopologyVersion(2, 0, {"sums": 4})
    rescales.prepared(Prepared(target, version, cast(Application, None), cast(Protected, None), b""))
    assert rescales.ready(target, 1) is not None
    assert rescales.ready(target, 2) is None  # the same wish, one version later
    assert rescales.ready(Target({"sums": 3}), 1) is None
    store.close()

"""Judges of what a simulated run leaves behind: its results, and how its drivers ended."""

from __future__ import annotations

from tenax.control.instructions import Outcome
from tenax.simulation.driver import Driver
from tenax.simulation.keyed import KeyedToy
from tenax.simulation.store import Commit, Store
from tenax.simulation.toy import INITIAL, Digest, Toy
from tenax.simulation.versions import VersionedStore

Result = tuple[int, str, Digest]
"""Batch, task and content."""


def judge_results(toy: Toy, store: Store, batches: int) -> None:
    """Every batch is published once per output, in order, with what a run without failures makes of the batch log."""
    if sorted(store.history) != list(range(1, batches + 1)):
        raise AssertionError(f"all {batches} batches are logged, found {sorted(store.history)}")
    expected = expected_results(toy, store, batches)
    by_output: dict[str, list[Commit]] = {}
    finals = [commit for commit in store.commits if not commit.tentative]
    for commit in finals:
        by_output.setdefault(str(commit.task), []).append(commit)
    for task, commits in by_output.items():
        committed = [(commit.batch, task, commit.content) for commit in commits]
        wanted = [result for result in expected if result[1] == task]
        if committed != wanted:
            wrong = next((a, b) for a, b in zip([*committed, None], [*wanted, None], strict=False) if a != b)
            raise AssertionError(f"results are those of a run without failures, found {wrong[0]} for {wrong[1]}")
    if len(finals) != len(expected):
        raise AssertionError(f"{len(expected)} final results are committed, found {len(finals)}")
    epochs = [commit.epoch for commit in store.commits]
    if epochs != sorted(epochs):
        raise AssertionError("no driver commits after a newer one, found an older epoch later")


def expected_results(toy: Toy, store: Store, batches: int) -> list[Result]:
    """What a run without failures makes of the batch log."""
    if isinstance(toy, KeyedToy):
        assert isinstance(store, VersionedStore)
        return _by_group(toy, store, batches)
    expected = []
    states = [INITIAL] * len(toy.tasks)
    for batch in range(1, batches + 1):
        states, results = toy.batch(states, store.history[batch])
        expected += [(batch, str(task), content) for task, content in results.items()]
    return expected


def _by_group(toy: KeyedToy, store: VersionedStore, batches: int) -> list[Result]:
    """What a run that was never rescaled makes of it, given to the tasks of the version of every batch."""
    expected, whole = [], toy.whole()
    versions = {version.number: toy.of_version(version) for version in store.versions}
    states = [INITIAL] * len(whole.tasks)
    for batch in range(1, batches + 1):
        states, results = whole.batch(states, store.history[batch])
        by_operator = {task.operator: content for task, content in results.items()}
        number = max(version.number for version in store.versions if version.after < batch)
        version = versions[number]
        expected += [(batch, str(task), version.part(by_operator[task.operator], task)) for task in version.outputs]
    return expected


def judge_end(toy: Toy, store: Store, drivers: list[Driver], batches: int) -> None:
    """The newest driver finished, with a checkpoint of the last batch; all others are dead or have stopped.

    Of tasks that are never stored the checkpoint has what brings them there.
    """
    last = max(drivers, key=lambda driver: driver.epoch).stop
    if last is None or last.outcome is not Outcome.FINISHED:
        raise AssertionError(f"the newest driver finishes, found {last}")
    if any(driver.group.alive for driver in drivers):
        raise AssertionError("no driver is left waiting, found one")
    cut = store.checkpoints[max(store.checkpoints)][0]
    newest = min(point.batch for point in cut.points if point.task.operator not in toy.memory)
    if newest != batches:
        raise AssertionError(f"the last checkpoint is of batch {batches}, found {newest}")

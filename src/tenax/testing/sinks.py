"""Does a sink commit every final result once, wherever the driver dies, and nothing for a driver that was replaced?"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType

import polars as pl

from tenax.connectors.lifecycle import opened
from tenax.connectors.sink import Committer, Key, Results, Sink, Staged, stage
from tenax.errors import BrokenContract, ConflictingResults, EpochLost, InvalidRequest, TenaxError
from tenax.testing.shipping import shipped

OUTPUT, RUN, ANOTHER_RUN = "checked", "a-run", "another-run"
BATCHES, PARTITIONS = 3, 2
MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 32 << 20
STAMPS = [1_000_000, 2_000_000, 2_000_000]

Make = Callable[[Path], Sink]
Frame = Callable[[Key, bool], pl.DataFrame]


def check_sink(
    make: Make,
    *,
    results: Callable[[Sink, str], Results] | None = None,
    rows: Frame | None = None,
    deaths: int | None = None,
) -> None:
    """Try a sink with every death of a driver; raises `BrokenContract` with the rule that it does not keep.

        tx.testing.check_sink(lambda folder: MySink(folder / "results.db"))

    - `make` gives a sink whose place is below a folder: the same place for the same folder.
    - `results` reads a place back, if the sink's own `results` cannot.
    - `rows` makes the rows of a (batch, partition), other ones if they are tentative; without it, a few columns of
      common types. One result has no rows.

    What is tried:

    - The sink can be pickled, and stages plain data. What is staged is not seen, however often it was.
    - What is committed is seen, at once and by the next driver; repeated, nothing changes. Another number of rows is
      refused, and so is another run.
    - Tentative results are seen until the final one takes their place, and never after it.
    - A driver dies before every line of the sink's own code, the first and the last time that it is reached while it
      stages, commits, shows, closes, takes over. The next one takes over in a higher epoch, and makes again what is not
      committed: every result is there once, nothing is tentative, as if nobody had died. `deaths` bounds how many are
      tried, evenly spread.
    - After a take-over, an older driver that still lives gets `tx.EpochLost` for every call, and changes nothing.
    """
    frame = _rows if rows is None else rows
    with tempfile.TemporaryDirectory(prefix="tenax-sink-", dir=_in_memory()) as folder:
        trial = _Trial(make, Path(folder), frame, results)
        trial.begin("life")
        _check_life(trial)
        _check_refusals(trial)
        _check_fencing(trial)
        _check_deaths(trial, deaths)


@dataclass(frozen=True, slots=True)
class _Step:
    """One thing that a driver and its workers do."""

    what: str
    batch: int = 0
    partitions: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.batch:
            return self.what
        return f"{self.what} of batch {self.batch}, partition {', '.join(map(str, self.partitions))}"


# Tentative results that are corrected in the same life and in the next, one that is shown too late, partitions together
# and apart, all of it twice: what is not repeated here is repeated by the next life.
TAKE_OVER, COMMIT, SHOW, CLOSE = "take-over", "commit", "show", "close"
SCRIPT = (
    _Step(TAKE_OVER),
    _Step(COMMIT, 1, (0, 1)),
    _Step(COMMIT, 1, (0, 1)),
    _Step(SHOW, 2, (0, 1)),
    _Step(SHOW, 2, (1,)),
    _Step(COMMIT, 2, (0,)),
    _Step(SHOW, 2, (0,)),
    _Step(TAKE_OVER),
    _Step(COMMIT, 2, (1,)),
    _Step(SHOW, 3, (0, 1)),
    _Step(COMMIT, 3, (1, 0)),
    _Step(CLOSE),
)


class _Trial:
    """A place, the driver that has it now, and what must be there."""

    def __init__(self, make: Make, folder: Path, frame: Frame, read: Callable[[Sink, str], Results] | None) -> None:
        self.make = make
        self.root = folder
        self.folder: Path | None = None
        self.frame: Frame = cache(frame)
        self.read = read

    def begin(self, name: str) -> None:
        """At a new place; the one before is of no use any more."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = self.root / name
        self.store = self.folder / "store"
        self.store.mkdir(parents=True)
        self.sink = self.make(self.folder)
        self.packed = _packed(self.sink)
        self.epoch = 0
        self.committer: Committer | None = None
        self.final: set[Key] = set()
        self.shown: set[Key] = set()
        self.attempts = 0
        self.doing = ""

    def take_over(self) -> Committer:
        self.epoch += 1
        self.committer = self.sink.committer(OUTPUT, self.store, RUN, self.epoch)
        return self.committer

    def staged(self, batch: int, partitions: Iterable[int], *, tentative: bool = False) -> list[Staged]:
        """As workers stage them: by copies, each result twice."""
        doing, self.doing = self.doing, "stage"
        staged = []
        with opened(pickle.loads(self.packed)) as writing:
            for partition in partitions:
                rows = self.frame((batch, partition), tentative)
                for _ in range(2):
                    self.attempts += 1
                    result = stage(writing, OUTPUT, partition, batch, f"{self.epoch}.{self.attempts}", rows)
                staged.append(result)
        self.doing = doing
        return staged

    def do(self, step: _Step) -> None:
        """A step of the script, by the driver that has the output now."""
        if step.what == TAKE_OVER:
            self.take_over()
            return
        assert self.committer is not None
        keys = {(step.batch, partition) for partition in step.partitions}
        if step.what == COMMIT:
            self.committer.commit(step.batch, self.staged(step.batch, step.partitions))
            self.final |= keys
            self.shown -= keys
        elif step.what == SHOW:
            self.committer.show(step.batch, self.staged(step.batch, step.partitions, tentative=True), 0.5)
            self.shown |= keys - self.final
        else:
            self.committer.close()

    def die(self) -> None:
        """All that the operating system does for a process that is gone: what it held is let go of."""
        committer, self.committer = self.committer, None
        if committer is not None:
            with suppress(Exception):
                committer.close()
        else:  # it died while it took over
            gc.collect()

    def finish(self) -> None:
        """What the next driver does: take over, and make again what is not committed."""
        committer = self.take_over()
        for batch in range(1, BATCHES + 1):
            left = [partition for partition in range(PARTITIONS) if batch > committer.last_batch(partition)]
            if left:
                committer.commit(batch, self.staged(batch, left))
        self.final, self.shown = set(_KEYS), set()
        committer.close()

    def results(self) -> Results:
        results = self.sink.results(OUTPUT) if self.read is None else self.read(self.sink, OUTPUT)
        if results is None:
            raise InvalidRequest(
                f"a sink is checked by what it holds, found {type(self.sink).__name__} without results(): define it, "
                "or pass results=..."
            )
        return results

    def check(self, when: str) -> None:
        """What is seen is what was committed, and what is tentative of the rest."""
        seen = self.results()
        for key in sorted({*self.final, *seen.final}):
            expected = self.frame(key, False) if key in self.final else None
            _check_result("final", key, seen.final.get(key), expected, when)
        if seen.repeated:
            raise BrokenContract(f"{when}: a final result is there once, found {_named(seen.repeated[0])} repeated")
        shows = self.committer is not None and type(self.committer).show is not Committer.show
        for key in sorted({*self.shown, *seen.tentative}) if shows else ():
            expected = self.frame(key, True) if key in self.shown else None
            _check_result("tentative", key, seen.tentative.get(key), expected, when)


_KEYS = [(batch, partition) for batch in range(1, BATCHES + 1) for partition in range(PARTITIONS)]


def _check_result(kind: str, key: Key, rows: pl.DataFrame | None, expected: pl.DataFrame | None, when: str) -> None:
    if expected is None:
        if rows is not None and rows.height:
            raise BrokenContract(
                f"{when}: what is not {kind} is not seen as such, found {rows.height} {kind} rows of {_named(key)}: "
                "keep staged results apart, and take tentative ones back with the final one"
            )
    elif rows is None:
        if expected.height:
            raise BrokenContract(
                f"{when}: a {kind} result is seen when the call has returned, found nothing of {_named(key)}: make it "
                "visible before, and again where a driver died"
            )
    elif expected.height and not (rows.columns == expected.columns and rows.equals(expected)):
        raise BrokenContract(
            f"{when}: a {kind} result has the rows that were written, once and in their order, found {rows.rows()[:5]} "
            f"for {expected.rows()[:5]} of {_named(key)}: add them in the one transaction that commits it"
        )


def _check_life(trial: _Trial) -> None:
    """Nobody dies."""
    for number, step in enumerate(SCRIPT):
        if trial.committer is not None and step.what != CLOSE:
            trial.staged(step.batch or 1, step.partitions or (0,))
            trial.check(f"before the {step}, with all of it staged")
        trial.do(step)
        trial.check(f"after the {step} (step {number + 1})")
        if step.what != CLOSE:
            _check_told(trial, f"after the {step} (step {number + 1})")
    committer = trial.take_over()
    trial.check("after the last take-over")
    _check_told(trial, "after the last take-over")
    for batch in range(1, BATCHES + 1):
        committer.commit(batch, trial.staged(batch, range(PARTITIONS)))
    trial.check("when all was committed once more")
    committer.close()


def _check_told(trial: _Trial, when: str) -> None:
    """The committer knows what it has, and so does a survey."""
    committer = trial.committer
    assert committer is not None
    for key in _KEYS:
        if committer.is_committed(*key) != (key in trial.final):
            raise BrokenContract(
                f"{when}: is_committed() tells which final results count, found {key not in trial.final} of "
                f"{_named(key)}: read it from where the results are"
            )
    for partition in range(PARTITIONS):
        last = max((batch for batch, number in trial.final if number == partition), default=0)
        if committer.last_batch(partition) != last:
            raise BrokenContract(
                f"{when}: last_batch() is the newest final batch of a partition, found "
                f"{committer.last_batch(partition)} for {last} of partition {partition}: results would be lost or "
                "repeated"
            )
    newest = max((batch for batch, _ in trial.final), default=0)
    if committer.highest < newest:
        raise BrokenContract(
            f"{when}: highest is the newest batch with any result, found {committer.highest} < {newest}"
        )
    survey = trial.sink.survey(OUTPUT, trial.store)
    if survey is not None and survey.final != trial.final:
        raise BrokenContract(
            f"{when}: a survey tells which final results count, found {sorted(survey.final)} for {sorted(trial.final)}"
        )


def _check_refusals(trial: _Trial) -> None:
    """Other rows, another run."""
    trial.begin("refusals")
    committer = trial.take_over()
    trial.do(_Step(COMMIT, 1, (0, 1)))
    original = trial.frame
    trial.frame = lambda key, tentative: pl.concat([original(key, tentative), original((1, 1), False)])
    staged = trial.staged(1, [1])
    trial.frame = original
    _refused(
        lambda: committer.commit(1, staged), ConflictingResults, "a final result with another number of rows is refused"
    )
    trial.check("after a conflicting commit")
    taken = "a place whose results are of another run is refused"
    _refused(lambda: trial.sink.committer(OUTPUT, trial.store, ANOTHER_RUN, 7).close(), ConflictingResults, taken)
    trial.do(_Step(COMMIT, 2, (0, 1)))
    trial.check("after another run was refused, and the owner went on")
    committer.close()


def _check_fencing(trial: _Trial) -> None:
    """At every step, a newer driver takes over and the older one goes on as if it knew nothing."""
    for number in range(1, len(SCRIPT)):
        trial.begin(f"fencing-{number}")
        for step in SCRIPT[:number]:
            trial.do(step)
        old, old_epoch = trial.committer, trial.epoch
        assert old is not None
        later = BATCHES + 1
        new = trial.take_over()
        # Its workers know nothing of it either; what they staged before may have been swept.
        final, tentative = (trial.staged(later, range(PARTITIONS), tentative=each) for each in (False, True))
        when = f"after the {SCRIPT[number - 1]} and a take-over"
        _refused(partial(old.commit, later, final), EpochLost, f"{when}, commit() of the older driver is refused")
        if type(old).show is not Committer.show:
            shows = partial(old.show, later, tentative, 0.5)
            _refused(shows, EpochLost, f"{when}, show() of the older driver is refused")
        again = partial(trial.sink.committer, OUTPUT, trial.store, RUN, old_epoch)
        _refused(again, EpochLost, f"{when}, an older epoch does not take over")
        trial.check(f"{when}, when the older driver went on")
        old.close()
        new.commit(later, trial.staged(later, [0]))
        trial.final.add((later, 0))
        trial.check(f"{when}, when the newer driver went on")
        new.close()


def _refused(call: Callable[[], object], expected: type[TenaxError], rule: str) -> None:
    try:
        call()
    except expected:
        return
    except Exception as error:
        raise BrokenContract(
            f"{rule} with tx.{expected.__name__}, found {type(error).__name__}: {error}: raise that instead"
        ) from error
    raise BrokenContract(
        f"{rule} with tx.{expected.__name__}, found that it was done: refuse it before anything changes"
    )


class _Death(BaseException):
    """The driver is gone."""


class _Lines:
    """Counts the lines of the sink's own code that run, and kills the driver before one of them."""

    def __init__(self, trial: _Trial, files: frozenset[str], at: int = 0) -> None:
        self.trial = trial
        self.files = files
        self.at = at
        self.count = 0
        self.where = ""
        self.reached: dict[tuple[str, str, int], list[int]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> _Lines | None:  # noqa: ARG002
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line":
            self.count += 1
            line = (self.trial.doing, frame.f_code.co_filename, frame.f_lineno)
            self.reached.setdefault(line, [self.count, 0])[1] = self.count
            if self.count == self.at:
                self.where = f"line {frame.f_lineno} of {Path(frame.f_code.co_filename).name} ({frame.f_code.co_name})"
                raise _Death
        return self

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def _check_deaths(trial: _Trial, most: int | None) -> None:
    trial.begin("counting")
    trial.take_over()
    files = _own_files(trial.sink, trial.committer)
    trial.die()
    counting = _Lines(trial, files)
    trial.begin("counted")
    _live(trial, counting)
    moments = sorted({moment for both in counting.reached.values() for moment in both})
    for at in moments[:: 1 if most is None else max(1, len(moments) // max(1, most))]:
        trial.begin(f"death-{at}")
        dying = _Lines(trial, files, at)
        when = _live(trial, dying)
        trial.die()
        said = f"after a death before {dying.where}, in the {when}"
        try:
            trial.finish()
        except BrokenContract:
            raise
        except Exception as error:
            raise BrokenContract(
                f"{said}: the next driver takes over and goes on, found {type(error).__name__}: {error}: let "
                "committer() understand whatever a death leaves"
            ) from error
        trial.check(said)


def _live(trial: _Trial, lines: _Lines) -> str:
    """The script up to a death; gives the step in which it came."""
    for step in SCRIPT:
        try:
            with lines.watched():
                trial.doing = step.what
                trial.do(step)
        except _Death as death:
            death.__traceback__ = None  # frames hold what a process that is gone has let go of
            return str(step)
    return "end"


def _own_files(*parts: object) -> frozenset[str]:
    """The files of the classes of a sink: what they call elsewhere is tried where it belongs."""
    files = set()
    for kind in {kind for part in parts for kind in type(part).__mro__}:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None)
        if file is not None and kind not in {Sink, Committer} and kind.__module__ not in {"abc", "builtins", "typing"}:
            files.add(file)
    return frozenset(files)


def _packed(sink: Sink) -> bytes:
    try:
        packed = shipped(sink)
        pickle.loads(packed)
    except Exception as error:
        raise BrokenContract(
            f"a sink travels to the nodes pickled, found {type(error).__name__}: {error}: make what cannot travel in "
            "open(), or leave it behind with __getstate__"
        ) from error
    return packed


def _in_memory() -> str | None:
    """Drivers die here, not machines: nothing has to reach a disk, and hundreds of trials take less time."""
    return str(MEMORY) if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES else None


def _named(key: Key) -> str:
    return f"batch {key[0]}, partition {key[1]}"


def _rows(key: Key, tentative: bool) -> pl.DataFrame:
    """A few rows of common types, two of them alike; (2, 0) has none."""
    batch, partition = key
    count = 0 if key == (2, 0) and not tentative else 3
    frame: Mapping[str, Sequence[object]] = {
        "window_end": STAMPS[:count],
        "name": [f"{batch}.{partition}", None, None][:count],
        "count": [batch, -partition, -partition][:count],
        "mean": [batch / 3 + (10.0 if tentative else 0.0), None, None][:count],
        "good": [True, False, False][:count],
    }
    kinds = {"window_end": pl.Int64, "name": pl.String, "count": pl.Int64, "mean": pl.Float64, "good": pl.Boolean}
    return pl.DataFrame(frame, schema=kinds).with_columns(pl.col("window_end").cast(pl.Datetime("us")))

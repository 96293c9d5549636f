"""Real executors killed, hung and brought back: final results are those of a run without failures, to the byte.

locations (4) --> speed-window (4) --+--> speed (4)
                                     +--> join-1 (4) --> filter-1 (4) --> jams (4)
reports (2) ----> incidents (2) -----+
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tenax.chaos.injector import Injector
from tenax.chaos.oracle import judge, with_results_in
from tenax.chaos.process import run_in_processes
from tenax.chaos.record import Moment, Outcome, Recorder, Timeline, What
from tenax.chaos.runs import STORE, Trial, run_and_judge, varied
from tenax.chaos.schedule import Kind, Schedule, parse_fault, random_schedule
from tenax.chaos.settings import CHAOS
from tenax.cli.availability import numbers
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event
from tenax.control.instructions import Decided
from tenax.control.notices import TasksMoved
from tenax.engine.driver import Driver
from tenax.engine.loading import load_application
from tenax.engine.observer import Observer
from tenax.engine.queries import QUERIES
from tenax.engine.session import Session
from tenax.engine.worker.steps import TRIM_EVERY
from tenax.examples import app_path
from tenax.model.protection import Protection
from tenax.model.settings import Settings
from tenax.store.events import read_events
from tenax.store.records import mapping

LONG = pytest.mark.long  # runs in `make chaos`

NODES, RACKS = 4, 2
CHECKPOINT_EVERY = 4
AFTER = 24  # batches after a recovery when nothing of it is left
BATCH_S, BATCH_ROWS, BATCHES = 0.25, 100, 26
OPTIONS: Mapping[str, object] = {
    "rows": BATCH_ROWS * BATCHES,
    "reports": 300,
    "rate": BATCH_ROWS / BATCH_S,
    "users": 2_000,
    "segments": 20,
    "length": "3s",
    "parallelism": 4,
    "paced": True,
}


def faults(text: str) -> Schedule:
    """`kill 2@9b, return 1@15b` as a schedule."""
    return tuple(parse_fault(Kind(kind), what) for kind, what in (fault.split() for fault in text.split(", ")))


def chaotic_settings(how: Protection, nodes: int = NODES, racks: int | None = RACKS) -> Settings:
    """Nodes have room for everything, however slow the machine is; test_capacity.py has those that have not."""
    return replace(CHAOS, protection=how).but(
        nodes=nodes, racks=racks, batch=timedelta(seconds=BATCH_S), max_rows=BATCH_ROWS, node_limit=100
    )


def tried(session: Session, out: Path, schedule: Schedule, how: Protection, seed: int | None = None) -> Outcome:
    """Run traffic under faults, and ask the oracle; with what happened if it does not hold."""
    print(f"seed {seed}: {' '.join(map(str, schedule))}; {how}")
    trial = Trial(chaotic_settings(how), schedule, seed)
    outcome = run_and_judge(load_application(app_path("traffic"), OPTIONS), out, trial, session)
    print(outcome.to_json())
    assert outcome.held, outcome.findings
    assert outcome.final_equals_failure_free
    assert (outcome.reference.outputs, outcome.reference.not_judged) == (2, ())
    assert (outcome.lost, outcome.duplicated, outcome.different) == (0, 0, 0)
    assert outcome.corrected_results == outcome.tentative_results
    assert outcome.batches >= BATCHES
    return outcome


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=LONG) for number in range(1, 5))])
def test_random_faults_change_no_final_result(number: int, four: Session, tmp_path: Path) -> None:
    seed = int(os.environ.get("TENAX_SEED", "100")) + number
    schedule = random_schedule(seed, NODES, RACKS, within=20, driver=False)
    tried(four, tmp_path, schedule, varied(seed, checkpoint_every=CHECKPOINT_EVERY), seed)


TARGETED: Mapping[str, tuple[str, Protection]] = {
    "two nodes at once, all replicated": ("kill 2@6b, return 2@11b", Protection(replicas="all")),
    "a task and its producer": ("kill join-1[0]+speed-window[0]@6b", Protection()),
    "a failure during recovery": ("kill 1@6b, kill 1@1r, return 1@14b", Protection()),
    "a rack, outputs held": ("kill rack1@6b, return 1@8b, return 1@14b", Protection(outputs="hold")),
    "a rack, blocking": ("kill rack2@6b, return 2@6b", Protection(recovery="blocking", backups="all")),
    "a rack, adaptive backups": ("kill rack1@6b, return 2@8b, kill rack2@14b", Protection(backups="adaptive")),
    "all nodes, one of which returns in time": ("kill all@6b, return 1@6b", Protection(replicas=4)),
    "neighbours in the middle of a sweep": (
        "kill join-1[0]+speed-window[0]@2c, return 1@16b",
        Protection(checkpoint="sweeping"),
    ),
    "neighbours, every node stored by its own timer": (
        "kill join-1[0]+speed-window[0]@8b, return 1@14b",
        Protection(checkpoint="synchronous"),
    ),
    "neighbours, every task stored by its own timer": (
        "kill join-1[0]+speed-window[0]@8b, return 1@14b",
        Protection(checkpoint="individual"),
    ),
    "neighbours, both copies of which send": (
        "kill join-1[0]+speed-window[0]@6b, return 1@10b",
        Protection(standby={"speed-window": "active-active", "join-1": "active-active"}),
    ),
    "neighbours, nothing stored": ("kill join-1[0]+speed-window[0]@12b, return 1@16b", Protection(checkpoint="none")),
    "all nodes, some operators never stored": (
        "kill 1@6b, return 1@8b, kill all@14b, return 2@14b",
        Protection(replicas=4, checkpoint="individual", checkpoints={"speed-window": "none", "join-1": "none"}),
    ),
}
AMONG_THE_LONG = {  # the others stand for them in every run of the tests
    "a rack, adaptive backups",
    "all nodes, one of which returns in time",
    "neighbours, every node stored by its own timer",
    "neighbours, every task stored by its own timer",
    "neighbours, nothing stored",
    "all nodes, some operators never stored",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[LONG] * (name in AMONG_THE_LONG)) for name in TARGETED])
def test_nodes_that_die_change_no_final_result(name: str, four: Session, tmp_path: Path) -> None:
    text, how = TARGETED[name]
    outcome = tried(four, tmp_path, faults(text), limited(how))
    assert outcome.unreached == ()
    assert outcome.faults
    assert all(impact.nodes for impact in outcome.faults)
    assert outcome.detection_s is not None
    assert outcome.all_recovered_s is not None
    if how.outputs == "hold" or how.recovery == "blocking":
        assert outcome.tentative_results == 0
    check_queries(tmp_path)


def check_queries(out: Path) -> None:
    """The events tell of every query when a loss began, and how long its first final result after that took."""
    recorded = [mapping(event[QUERIES]) for event in read_events(out / STORE) if QUERIES in event]
    assert recorded[0]["phase"] == "begins"
    queries = numbers(recorded[-1][QUERIES])
    assert set(queries) == {f"{output}[{index}]" for output in ("jams", "speed") for index in range(4)}
    for known in queries.values():
        assert (known["first_final_s"] or 0.0) >= (known["first_shown_s"] or 0.0) > 0.0
        assert known["waits_s"] is None


def test_nodes_that_die_while_a_checkpoint_is_stored_change_no_final_result(four: Session, tmp_path: Path) -> None:
    outcome = tried(four, tmp_path, faults("kill 2@2c, return 2@12b"), limited(Protection(replicas=4)))
    assert len(outcome.faults) == 1


def test_a_backlog_whose_batches_size_themselves_comes_out_the_same_after_a_loss(four: Session, tmp_path: Path) -> None:
    backlog = {**OPTIONS, "paced": False, "rows": 1_000_000, "reports": 20_000, "rate": 100_000.0}
    how = chaotic_settings(limited(Protection())).but(max_rows=None)
    outcome = run_and_judge(
        load_application(app_path("traffic"), backlog), tmp_path, Trial(how, faults("kill 1@1b, return 1@2b")), four
    )
    assert outcome.held, outcome.findings
    assert (outcome.lost, outcome.duplicated, outcome.different) == (0, 0, 0)
    assert outcome.faults


@LONG
def test_nodes_return_by_themselves_when_a_run_cannot_go_on_without_any(four: Session, tmp_path: Path) -> None:
    outcome = tried(four, tmp_path, faults("kill all@6b"), limited(Protection()))
    assert len(outcome.faults[0].nodes) == NODES
    assert any("no node" in text for text in noted(tmp_path))


def test_a_node_that_hangs_is_given_up_and_changes_no_final_result(four: Session, tmp_path: Path) -> None:
    outcome = tried(four, tmp_path, faults("hang 1@6b, return 1@8b"), limited(Protection()))
    (impact,) = outcome.faults
    assert impact.detection_s is not None  # it was not waited for until the end


class Buffers(Observer):
    """Looks at what the nodes hold, whenever a live pass has finished, until long after tasks have moved back."""

    def __init__(self, nodes: Path) -> None:
        self.nodes = nodes
        self.held: list[tuple[int, bool, int, int]] = []
        """Last batch, whether tasks were missing, retained outputs, bytes of all files."""
        self.when_long_over: Callable[[], None] = lambda: None
        self.moved: int | None = None
        """The batch after which tasks moved to nodes that had returned."""
        self.homes: set[str] = set()
        self._outage = False

    def passed(self, _first: int, last: int, _reports: object, _seconds: float) -> None:
        files = [path for path in self.nodes.glob("run/store/run/*/nodes/**/*") if path.is_file()]
        sizes = {path: path.stat().st_size for path in files if path.exists()}
        retained = sum(path.suffix == ".out" for path in sizes)
        self.held.append((last, self._outage, retained, sum(sizes.values())))
        if self.moved is not None and last > self.moved + AFTER + TRIM_EVERY:
            self.when_long_over()

    def handled(self, coordinator: Coordinator, _event: Event, then: Sequence[Decided]) -> None:
        self._outage = coordinator.state.outage is not None
        self.homes = {task.primary.node for task in coordinator.state.tasks if task.primary is not None}
        if any(isinstance(instruction, TasksMoved) for instruction in then):
            self.moved = coordinator.state.finished


@LONG
def test_after_a_recovery_nodes_hold_no_more_than_before(four: Session, tmp_path: Path) -> None:
    trial = Trial(chaotic_settings(limited(Protection())), faults("kill 2@30b, return 2@34b"))
    buffers = Buffers(tmp_path)
    recorder = Recorder(also=(buffers,))
    options = {**OPTIONS, "rows": BATCH_ROWS * 2_000}  # the run is stopped, however long the recovery takes
    application = load_application(app_path("traffic"), options)
    chaotic = with_results_in(application, tmp_path / "results")
    tasks = sum(operator.parallelism for operator in application.topology.operators)
    # two nodes have room for all tasks but two: these are missing until others return, however soon the rest is back
    settings = trial.settings.but(slots=tasks // 2 - 1)
    driver = Driver(chaotic, tmp_path / "run" / "store", settings, recorder, four)
    buffers.when_long_over = driver.request_stop
    Injector(four, NODES, trial.schedule, recorder, ()).run(driver)
    logged = settings.but(replay=True)  # what is in the log, and no more
    Driver(chaotic, tmp_path / "run" / "store", logged, Recorder(), four).run()
    assert judge(application, tmp_path / "run" / "store", tmp_path / "results", four, NODES).held
    assert len(buffers.homes) == NODES  # tasks have moved to those that came back
    missing = [last for last, outage, _, _ in buffers.held if outage]
    assert max(retained for last, _, retained, _ in buffers.held if last >= missing[0]) > 0  # meanwhile all retain
    before = [holding for holding in buffers.held if holding[0] < missing[0]]
    assert buffers.moved is not None
    after = [holding for holding in buffers.held if holding[0] > buffers.moved + AFTER]
    assert min(retained for _, _, retained, _ in after) == max(retained for _, _, retained, _ in before) == 0
    # how many versions lie there between two trims depends on how long passes are: on a slow machine 1.4 times was seen
    assert min(size for *_, size in after) <= 2.0 * max(size for *_, size in before)


def limited(how: Protection) -> Protection:
    """The same with frequent checkpoints, so that there is one to go back to."""
    return replace(how, checkpoint_every=CHECKPOINT_EVERY)


def noted(out: Path) -> list[str]:
    return [
        str(moment.detail["text"]) for moment in Timeline(out / "timeline.jsonl").read() if moment.what is What.NOTED
    ]


@LONG
def test_a_driver_killed_while_nodes_are_missing_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    schedule = (parse_fault(Kind.KILL, "1@8b"), parse_fault(Kind.DRIVER, "12b"))
    trial = Trial(chaotic_settings(limited(Protection()), nodes=2, racks=None), schedule)
    moments: list[Moment] = []
    outcome = run_in_processes(app_path("traffic"), OPTIONS, tmp_path, trial, moments.append)
    print(outcome.to_json())
    assert outcome.held, outcome.findings
    assert outcome.drivers == 2
    assert outcome.unreached == ()
    assert [impact.fault for impact in outcome.faults] == ["--kill 1@8b", "--kill-driver 12b"]
    faults_made = [moment.detail["number"] for moment in moments if moment.what is What.FAULT]
    assert faults_made == [0, 1]  # what happened before the driver died does not happen again
    killed_s = [moment for moment in moments if moment.what is What.FAULT][-1].at_s
    assert not any(moment.what is What.JOINED and moment.at_s < killed_s for moment in moments)

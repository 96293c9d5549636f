"""Passes as the coordinator asks for them: made an order, run on their nodes, judged, and answered by an event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tenax.application.application import Application
from tenax.control import events
from tenax.control.instructions import PassKind, RunPass
from tenax.control.recovery.failures import DeadlinePassed
from tenax.control.versions import Version
from tenax.engine.driver.answers import pass_failure
from tenax.engine.driver.jobs import BACKGROUND, LIVE, JobRunner, PassOutcome, group_of
from tenax.engine.driver.latecomers import Latecomers
from tenax.engine.driver.membership import Membership
from tenax.engine.driver.nodes import Nodes
from tenax.engine.driver.resuming import TakenOver
from tenax.engine.driver.uploads import Uploads
from tenax.engine.observer import Observer
from tenax.engine.worker.orders import NODE, Failure, Order, Report
from tenax.model.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Passes:
    """Carries out `RunPass`.

    - A pass that finished has been believed: its columns are those of its operators, and no row is late where none may.
    - A live pass takes a checkpoint's upload along that waits for one.
    """

    application: Application
    graph: TaskGraph
    run: TakenOver
    jobs: JobRunner
    nodes: Nodes
    membership: Membership
    uploads: Uploads
    latecomers: Latecomers
    observer: Observer
    began_s: float
    strict_lateness: bool

    def carry_out(self, instruction: RunPass) -> events.Event:
        """Run a pass; what became of it."""
        started = time.perf_counter()
        order = self.run.ordering.order(instruction, self.run.publisher.published)
        group = group_of(self.run.run_id, str(instruction.pass_id))
        with self.membership.bounded(group, order.layout.nodes, instruction.deadline_s) as deadline:
            try:
                outcome = self._run(order, live=instruction.kind is PassKind.LIVE)
            except Exception:
                if deadline.is_set():
                    return events.PassFailed(instruction.pass_id, DeadlinePassed(instruction.deadline_s))
                raise
        failed = self._refused(instruction, outcome)
        if failed is not None:
            return failed
        assert isinstance(outcome, PassOutcome)
        return self._finished(instruction, order, outcome.reports, started)

    def _run(self, order: Order, *, live: bool) -> PassOutcome | Failure:
        nodes = self.nodes.info(order.layout.nodes)
        if not live:
            return self.jobs.run(order, nodes, BACKGROUND)
        upload = self.uploads.pass_begins(order.layout.nodes)
        outcome: PassOutcome | Failure | None = None
        try:
            outcome = self.jobs.run(replace(order, upload=None if upload is None else upload.order), nodes, LIVE)
        finally:
            self.uploads.pass_ended(upload, outcome if isinstance(outcome, PassOutcome) else None)
        return outcome

    def _refused(self, instruction: RunPass, outcome: PassOutcome | Failure) -> events.PassFailed | None:
        """Why what a pass has brought is not believed; None if it is."""
        if isinstance(outcome, Failure):
            if outcome.kind == NODE:
                self.observer.said(f"node {outcome.task} is given up: {outcome.cause}")
                self.nodes.deregister(outcome.task)
            return events.PassFailed(instruction.pass_id, pass_failure(outcome, self.application.places))
        if self.strict_lateness:
            late = self.latecomers.refused(instruction, outcome.reports, self.run.publisher.final)
            if late is not None:
                return events.PassFailed(instruction.pass_id, late)
        return None

    def _finished(
        self, instruction: RunPass, order: Order, reports: list[Report], started: float
    ) -> events.PassFinished:
        for message in self.latecomers.add(instruction, reports):
            self.observer.said(message)
        self.run.ordering.learn(instruction, reports)
        self.run.publisher.keep(instruction.pass_id, reports)
        asked = {(step.task, step.node) for step in instruction.steps}
        names = order.layout.nodes
        of_steps = [report for report in reports if (self.graph.task(report.task), names[report.node]) in asked]
        if instruction.kind is PassKind.LIVE:
            self.observer.passed(instruction.first, instruction.last, of_steps, time.perf_counter() - started)
        levels = {operator: number for number, level in enumerate(order.layout.levels) for operator in level}
        answers = tuple(self._answer(instruction, names[report.node], report, levels) for report in of_steps)
        seconds = time.perf_counter() - started
        return events.PassFinished(instruction.pass_id, answers, time.monotonic() - self.began_s, seconds)

    def _answer(self, instruction: RunPass, node: str, report: Report, levels: Mapping[int, int]) -> events.TaskReport:
        """What the coordinator hears of the report of a step."""
        return events.TaskReport(
            Version(self.graph.task(report.task), instruction.last, instruction.pass_id),
            node,
            rows=report.rows_in,
            written_bytes=report.bytes_out,
            watermark_us=report.watermark_us,
            busy_s=report.seconds,
            rows_out=report.rows_out,
            rebuild_from=report.rebuild_from,
            state_bytes=report.state_bytes,
            level=levels[int(self.graph.operator_of[report.task])],
            restore_s=report.restore_s,
            read_bytes=report.read_bytes,
        )

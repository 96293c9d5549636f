"""Few backups in any task graph, by ranking candidates around one search source after the other."""

from __future__ import annotations

from enum import Enum
from heapq import heapify, heappop, heappush

from tenax.planning.backups.network import Network, network_of
from tenax.planning.backups.problem import BackupProblem, Choice

STEPS = 1e9  # ranks are sums of fractions: what differs by less than a step is rounding, the next criterion decides
WIDE_VISITS = 100_000  # candidates that a run looks at before it takes to short visits: about a second
SHORT_VISIT = 128  # candidates of a short visit


class Ranking(Enum):
    """What makes a candidate good; the distance from the search source and then task order decide between equals."""

    WORKLOAD = "workload"
    FLOW_THEN_WORKLOAD = "flow, then workload"


def dag(problem: BackupProblem, network: Network | None = None) -> Choice:
    """The better of two rankings, pruned: Algorithm 4 of Li et al. 2017, mended. O(tasks × substreams) at worst, and
    O(tasks) visits of bounded size in large graphs.

    The paper ranks by the workload B alone; ranking by the flow F first finds the bottlenecks it passes by.
    """
    network = network_of(problem) if network is None else network
    plans = [network.pruned(problem.limit, _Search(network, problem.limit, ranking).run()) for ranking in Ranking]
    best = min(plans, key=lambda backups: (network.count(backups), max(network.latencies(backups))))
    return Choice("dag", network.mask(best), min(1, network.count(best)))


class _Search:
    """One run of the algorithm. From each source, and from each backup found, until no node is beyond the bound:

    - D is the longest latency from the search source through nodes that are not backups;
    - candidates are nodes within the bound, not backups, on a path from the source that exceeds the bound (a node that
      leads to one beyond the bound on short ways only would not help);
    - the best ranked candidate becomes a backup.

    Only nodes on such a path are visited, and only up to the first beyond the bound. That is enough: the longest way
    to a candidate is itself part of such a path, so its D is exact, and the search of a source ends when no path from
    it exceeds the bound, which `below` tells without a visit. Graphs of thousands of tasks use up WIDE_VISITS; from
    then on a visit stops at the first SHORT_VISIT candidates in task order, whose values are final by then.
    """

    def __init__(self, network: Network, limit: int, ranking: Ranking) -> None:
        size = len(network)
        self.network = network
        self.limit = limit
        self.ranking = ranking
        self.backups = [False] * size
        self.below = network.latencies_below(self.backups)
        self.distance = [-1] * size
        self.flow = [0.0] * size
        self.workload = [0.0] * size
        self.stale = [False] * size
        self.visits = 0

    def run(self) -> list[bool]:
        """The backups; each is searched from once."""
        hops = _hops_to_sink(self.network)
        pending = [(-hops[node], node) for node, producers in enumerate(self.network.producers) if not producers]
        pending.sort()
        while pending:  # a node enters at most once as a source and once as a backup
            _, source = heappop(pending)
            while self._exceeds(source):  # each round adds a backup
                visited = self._explore(source)
                for chosen in self._choose(source, visited):
                    heappush(pending, (-hops[chosen], chosen))
                self._forget(visited)
        return self.backups

    def _start(self, source: int) -> int:
        return 0 if self.backups[source] else self.network.reprocess[source]

    def _exceeds(self, source: int) -> bool:
        return self._start(source) + self.below[source] > self.limit

    def _explore(self, source: int) -> list[int]:
        """Visit outward in topological order, so that all values of a node are final when its turn comes.

        F is the part of the source's flow that passes a node (equation 7), B the work that it would save (8). Of the
        source's twins none but itself is searched from, so it sends the share of one task.
        """
        distance, flow, workload, below = self.distance, self.flow, self.workload, self.below
        reprocess, limit = self.network.reprocess, self.limit
        distance[source], flow[source], workload[source] = self._start(source), 1.0, float(reprocess[source])
        tasks = self.network.weight[source]
        most = SHORT_VISIT if self.visits > WIDE_VISITS else len(distance)
        candidates = 0
        visited = []
        queue = [source]
        while queue and candidates <= most:  # every node enters once
            node = heappop(queue)
            visited.append(node)
            here = distance[node]
            if here > limit or here + below[node] <= limit or (self.backups[node] and node != source):
                continue
            candidates += self.network.weight[node] > 0
            sent_flow = flow[node] / tasks
            sent_work = (workload[node] + reprocess[node]) / tasks
            tasks = 1
            for consumer, share in zip(self.network.consumers[node], self.network.shares[node], strict=True):
                reach = here + reprocess[consumer]
                known = distance[consumer]
                if known < 0:
                    distance[consumer] = reach
                    heappush(queue, consumer)
                elif reach > known:
                    distance[consumer] = reach
                flow[consumer] += sent_flow * share
                workload[consumer] += sent_work * share
        self.visits += candidates
        self._forget(queue)
        return visited

    def _forget(self, nodes: list[int]) -> None:
        for node in nodes:
            self.distance[node] = -1
            self.stale[node] = False
            self.flow[node] = self.workload[node] = 0.0

    def _choose(self, source: int, visited: list[int]) -> list[int]:
        """New backups, best first, as long as what the visit found of them is still true: a backup changes no more
        than what lies behind it.
        """
        candidates = self._ranked(visited)
        chosen: list[int] = []
        while candidates and self._exceeds(source):  # every candidate leaves
            node = heappop(candidates)[-1]
            if self.stale[node]:
                break
            if self.distance[node] + self.below[node] <= self.limit:
                continue  # the backups just chosen have cut its paths short
            chosen.append(node)
            self.backups[node] = True
            self._shorten(node)
            self._spoil(node)
        return chosen

    def _ranked(self, visited: list[int]) -> list[tuple[int, int, int, int]]:
        """The candidates as a heap, the best first."""
        weight, backups, distance, limit = self.network.weight, self.backups, self.distance, self.limit
        candidates = [
            node
            for node in visited
            if weight[node] and not backups[node] and limit - self.below[node] < distance[node] <= limit
        ]
        scale = STEPS / max(1.0, *(self.workload[node] for node in candidates))
        by_flow = STEPS if self.ranking is Ranking.FLOW_THEN_WORKLOAD else 0.0
        ranked = [
            (-round(self.flow[node] * by_flow), -round(self.workload[node] * scale), -distance[node], node)
            for node in candidates
        ]
        heapify(ranked)
        return ranked

    def _spoil(self, chosen: int) -> None:
        """Mark what lies behind a new backup: its values have changed since the visit. Each node at most once."""
        stack = [chosen]
        while stack:
            for consumer in self.network.consumers[stack.pop()]:
                if self.distance[consumer] >= 0 and not self.stale[consumer]:
                    self.stale[consumer] = True
                    stack.append(consumer)

    def _shorten(self, chosen: int) -> None:
        """Bring `below` up to date upstream of a new backup, as far as it changes."""
        network, below, backups = self.network, self.below, self.backups
        queue = [-producer for producer in network.producers[chosen]]
        queue.sort()
        queued = set(queue)
        while queue:  # every ancestor enters at most once, consumers before producers
            entry = heappop(queue)
            node = -entry
            longest = 0
            for consumer in network.consumers[node]:
                reach = network.reprocess[consumer] + (0 if backups[consumer] else below[consumer])
                longest = max(longest, reach)
            if longest == below[node]:
                continue
            below[node] = longest
            if backups[node]:
                continue
            for producer in network.producers[node]:
                if -producer not in queued:
                    queued.add(-producer)
                    heappush(queue, -producer)


def _hops_to_sink(network: Network) -> list[int]:
    """The breadth-first level of each node, seen from a virtual sink; a hub is no hop of its own."""
    hops = [0] * len(network)
    for node in reversed(range(len(network))):
        nearest = min((hops[consumer] for consumer in network.consumers[node]), default=-1)
        hops[node] = nearest + (1 if network.weight[node] else 0)
    return hops

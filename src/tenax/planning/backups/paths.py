"""The shortest paths that exceed the bound: each must hold a backup, which is what a solver needs to know."""

from __future__ import annotations

from tenax.planning.backups.network import Network

MAX_PATHS = 20_000  # more than this slows the solver down instead of helping it
MAX_STEPS = 20 * MAX_PATHS


def long_paths(network: Network, limit: int) -> tuple[list[list[int]], bool]:
    """The nodes that can cut each path beyond the bound, and whether these are all such paths. O(MAX_STEPS).

    A path is listed when it exceeds the bound and, without its first node, would not: any longer one contains it, or
    one that starts later. Its last node only waits, so a backup among all the others is needed, and is enough.
    """
    below = network.latencies_below([False] * len(network))
    paths: list[list[int]] = []
    steps = 0
    for first, weight in enumerate(network.weight):
        own = network.reprocess[first]
        if weight == 0 or own == 0:
            continue  # a path without it is as long
        pending = [([first], own)]
        while pending:  # at most MAX_STEPS over all first nodes
            path, length = pending.pop()
            steps += 1
            if steps > MAX_STEPS or len(paths) >= MAX_PATHS:
                return paths, False
            for consumer in network.consumers[path[-1]]:
                reach = length + network.reprocess[consumer]
                if reach > limit:
                    if reach - own <= limit:
                        paths.append([node for node in path if network.weight[node]])
                elif reach + below[consumer] > limit:
                    pending.append(([*path, consumer], reach))
    return paths, True

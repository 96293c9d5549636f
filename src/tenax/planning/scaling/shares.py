"""What tasks are busy with after an operator was split or merged: key groups go with all that they bring."""

from __future__ import annotations

from collections.abc import Sequence

KEY_GROUPS = 128  # as in operators/keys.py; a test holds the two together


def shared(busy_s: Sequence[float], tasks: int) -> tuple[float, ...]:
    """How long each of so many tasks is busy with what these tasks were busy with. O(tasks).

    Only what whole tasks do is measured, so rows are taken to be spread evenly over the key groups of a task. Tasks own
    as equal numbers of key groups as there can be. Each keeps as many of its own as it may; what it gives away is
    shared by those that get some, an even mixture for each. So splitting a task that is busier than the others by its
    keys leaves its parts busier, too.
    """
    if tasks == len(busy_s):
        return tuple(busy_s)
    before, after = counts(len(busy_s)), counts(tasks)
    own = [0.0] * max(len(busy_s), tasks)
    wanting = list(after) + [0] * (len(own) - tasks)
    given_s = 0.0
    for task, (seconds, groups) in enumerate(zip(busy_s, before, strict=True)):
        keeps = min(groups, wanting[task])
        own[task] = seconds * keeps / groups
        wanting[task] -= keeps
        given_s += seconds - own[task]
    each_s = given_s / sum(wanting)  # what some give, others get
    return tuple(own[task] + each_s * wanting[task] for task in range(tasks))


def counts(tasks: int) -> list[int]:
    """How many key groups each of so many tasks owns, the first ones one more where they cannot be equal."""
    each, more = divmod(KEY_GROUPS, tasks)
    return [each + (task < more) for task in range(tasks)]

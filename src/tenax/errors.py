"""Every error that Tenax raises for a user, and the rule for its message.

A message is one line: the rule, the value found, the remedy.

    TenaxError
    ├── InvalidTopology     a topology, or one of its operators, breaks a rule of the model
    ├── InvalidCluster      nodes, racks, zones or their placement break a rule of the model
    ├── InvalidFile         a file is missing, unreadable, not YAML or JSON, or not in the format
    ├── InvalidRequest      an argument of a planner or command is outside its range
    │   └── UnknownTask     a task is named that the topology does not have
    ├── Infeasible          no plan can meet the bound that was asked for
    ├── TooLarge            an enumeration would pass its named bound
    └── InvalidPlan         a validator found a plan that breaks its promise (a bug, or a damaged plan)
"""


class TenaxError(Exception):
    """The base of every error that a user may see; its text is one line."""


class InvalidTopology(TenaxError):
    """A topology, or one of its operators, breaks a rule of the model."""


class InvalidCluster(TenaxError):
    """Nodes, racks, zones or their placement break a rule of the model."""


class InvalidFile(TenaxError):
    """A file is missing, unreadable, not YAML or JSON, or not in the format."""


class InvalidRequest(TenaxError):
    """An argument of a planner or command is outside its range."""


class UnknownTask(InvalidRequest):
    """A task is named that the topology does not have."""


class Infeasible(TenaxError):
    """No plan can meet the bound that was asked for."""


class TooLarge(TenaxError):
    """An enumeration would pass its named bound."""


class InvalidPlan(TenaxError):
    """A validator found a plan that breaks its promise."""

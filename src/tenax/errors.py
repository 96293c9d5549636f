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
    ├── InvalidPlan         a validator found a plan that breaks its promise (a bug, or a damaged plan)
    ├── UnreadableSource    a source's data cannot be found or parsed; the file and row are named
    │   ├── ChangedSource       a file is not the one that was planned: its size or modification time differs
    │   └── DifferingSchemas    a file's columns differ from those of the files before it
    ├── InvalidSource       an argument of a source or sink is outside its range
    ├── StoreFailed         the file system refused a read or write
    │   ├── SinkFailed      an output's results cannot be committed just now: its place is full, read-only or away
    │   └── SourceFailed    a source cannot be planned or read just now: its place is locked or away
    ├── SinkRaised          a function to which results are handed raised
    ├── UnsuitableStore     a store is of other code, topology or format, or its files cannot be created exclusively
    ├── DamagedStore        a stored file is missing, or its size or checksum differs
    ├── EpochLost           a newer driver has taken over; this one must stop
    ├── StatesDiffer        states of several tasks that become one contradict each other
    ├── ConflictingResults  a result was committed before with other rows, or a folder belongs to another run
    ├── BrokenContract      a source, sink or computation of a user's does not keep a rule of its contract
    ├── RunFailed           a run ended because it could not go on
    ├── RescaleRefused      a running driver did not do the rescale that was asked for
    ├── Superseded          a newer driver has taken the store of a run over
    └── ClusterFailed       Spark cannot be started, or does not give the nodes that were asked for
        └── StartStopped    a stop was asked for while Spark started
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


class UnreadableSource(TenaxError):
    """A source's data cannot be found or parsed."""


class ChangedSource(UnreadableSource):
    """A file is not the one that was planned."""


class DifferingSchemas(UnreadableSource):
    """A file's columns differ from those of the files before it."""


class InvalidSource(TenaxError):
    """An argument of a source or sink is outside its range."""


class StoreFailed(TenaxError):
    """The file system refused a read or write."""


class SinkFailed(StoreFailed):
    """An output's results cannot be committed just now."""


class SourceFailed(StoreFailed):
    """A source cannot be planned or read just now."""


class SinkRaised(TenaxError):
    """A function to which results are handed raised."""


class UnsuitableStore(TenaxError):
    """A store is of other code, another topology or format, or its file system cannot create files exclusively."""


class DamagedStore(TenaxError):
    """A stored file is missing, or its size or checksum differs."""


class StatesDiffer(TenaxError):
    """States of several tasks that become one contradict each other."""


class EpochLost(TenaxError):
    """A newer driver has taken over."""


class ConflictingResults(TenaxError):
    """A result was committed before with other rows, or a folder belongs to another run."""


class ClusterFailed(TenaxError):
    """Spark cannot be started, or does not give the nodes that were asked for."""


class StartStopped(ClusterFailed):
    """A stop was asked for while Spark started."""


class RunFailed(TenaxError):
    """A run ended because it could not go on; `details` is the traceback of the user's code, if that was the cause."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class RescaleRefused(TenaxError):
    """A running driver did not do the rescale that was asked for."""


class Superseded(TenaxError):
    """A newer driver has taken the store over."""


class BrokenContract(TenaxError, AssertionError):
    """A source, sink or computation of a user's does not keep a rule of its contract."""

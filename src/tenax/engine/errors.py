"""Every error of the engine's sources, sinks and store.

TenaxError
├── UnreadableSource        a source's data cannot be found or parsed; the file and row are named
│   ├── ChangedSource       a file is not the one that was planned: its size or modification time differs
│   └── DifferingSchemas    a file's columns differ from those of the files before it
├── InvalidSource           an argument of a source or sink is outside its range
├── StoreFailed             the file system refused a read or write
│   └── SinkFailed          an output's results cannot be committed just now: its place is full, read-only or away
├── SinkRaised              a function to which results are handed raised
├── UnsuitableStore         a store is of other code, topology or format, or its files cannot be created exclusively
├── DamagedStore            a stored file is missing, or its size or checksum differs
├── EpochLost               a newer driver has taken over; this one must stop
├── ConflictingResults      a result was committed before with other rows, or a folder belongs to another run
└── ClusterFailed           Spark cannot be started, or does not give the nodes that were asked for
    └── StartStopped        a stop was asked for while Spark started
"""

from tenax.errors import TenaxError


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


class SinkRaised(TenaxError):
    """A function to which results are handed raised."""


class UnsuitableStore(TenaxError):
    """A store is of other code, another topology or format, or its file system cannot create files exclusively."""


class DamagedStore(TenaxError):
    """A stored file is missing, or its size or checksum differs."""


class EpochLost(TenaxError):
    """A newer driver has taken over."""


class ConflictingResults(TenaxError):
    """A result was committed before with other rows, or a folder belongs to another run."""


class ClusterFailed(TenaxError):
    """Spark cannot be started, or does not give the nodes that were asked for."""


class StartStopped(ClusterFailed):
    """A stop was asked for while Spark started."""

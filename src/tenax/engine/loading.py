"""Loading a user's application file, so that it can be shipped to nodes that do not have it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from tenax.application.application import Application
from tenax.application.traces import RAISED, cause_of
from tenax.errors import InvalidFile, TenaxError

TOPOLOGY = "topology"
BUILD = "build"
MAIN = "__main__"


def load_application(path: Path, options: Mapping[str, object]) -> Application:
    """The application of a Python file: its module-level `topology`, or what its `build(**options)` returns.

    The file and the modules and packages beside it that it imports travel by value: nodes need not have them.
    """
    if not path.is_file():
        raise InvalidFile(f"{path}: no such file: name the Python file of your application")
    path = path.resolve()
    folder = str(path.parent)
    sys.path.insert(0, folder)
    module = _executed(path)
    ship_modules_in(path.parent)
    topology = getattr(module, TOPOLOGY, None)
    build = getattr(module, BUILD, None)
    if callable(build):
        topology = _built(path, build, options)
    elif options:
        raise InvalidFile(f"{path}: options need a function {BUILD}(...), found none: add it or leave them out")
    if topology is None:
        raise InvalidFile(
            f"{path}: a variable {TOPOLOGY!r} or a function {BUILD!r} is expected, found neither: add one"
        )
    try:
        application = topology.build() if hasattr(topology, "build") else topology
    except TenaxError as error:
        raise InvalidFile(f"{path}: {error}") from None
    if not isinstance(application, Application):
        raise InvalidFile(f"{path}: {TOPOLOGY} is a tenax.Topology, found {type(topology).__name__}: build one")
    return application


def ship_modules_in(folder: Path) -> None:
    """Let the loaded modules and packages of a folder travel by value: nodes need not have them."""
    for name, module in list(sys.modules.items()):
        if name != MAIN and _lies_in(folder, name):
            cloudpickle.register_pickle_by_value(module)  # those of __main__ do so by themselves


def _lies_in(folder: Path, module: str) -> bool:
    """Whether a module is a file of this folder, or part of a package that lies there."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if not isinstance(file, str) or top == "tenax":
        return False
    place = Path(file).resolve()
    return (place.parent.parent if place.name == "__init__.py" else place.parent) == folder


def _executed(path: Path) -> ModuleType:
    name = f"tenax_application_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidFile(f"{path}: a Python file is expected: name one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InvalidFile(f"{error.filename or path}: not Python: {error.msg} in line {error.lineno}") from None
    except RAISED as error:
        raise _explained(path, error) from error
    return module


def _explained(path: Path, error: BaseException) -> InvalidFile:
    """What went wrong in the user's file, and where."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    where = f", line {lines[-1]}" if lines else ""
    return InvalidFile(f"{path}{where}: {cause_of(error)}")


def _built(path: Path, build: object, options: Mapping[str, object]) -> object:
    assert callable(build)
    try:
        inspect.signature(build).bind(**options)
    except TypeError as error:
        raise InvalidFile(f"{path}: {BUILD}(...) does not take these options, {error}: see its parameters") from None
    try:
        return build(**options)
    except RAISED as error:
        raise _explained(path, error) from error

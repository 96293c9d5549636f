"""Values and code of users as plain data that stays the same while their meaning does."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import json
import math
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType

import polars as pl

from tenax.operators.parameters import attributes
from tenax.store.records import Json

MAX_DEPTH = 24  # of values within values; what lies deeper is known by its type
MAX_VALUES = 20_000  # that one description looks at
SHOWN_LETTERS = 200  # of a text; a longer one is known by its beginning and a digest
_FUNCTION = b"PLPYFN"  # how Polars' serialised form marks a Python function
_PICKLES = (b"\x80\x05\x95", b"\x80\x04\x95")
_NO_DOCSTRING = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_KINDS_OF_CALL = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
_TENAX = str(Path(__file__).resolve().parents[1])
_EXAMPLES = str(Path(_TENAX, "examples", "apps"))  # written as a user would
_LIBRARIES = frozenset(
    {
        *(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        _TENAX,
    }
)

FUNCTION, CLASS, EXPRESSION = "(function)", "(class)", "(expression)"
LABELS = frozenset({FUNCTION, CLASS, EXPRESSION})
"""Entries that are there to be read: what follows from them is beside them."""
CODE, DIGEST = "(code)", "(digest)"
FORMS = frozenset({CODE, DIGEST})
"""Entries that versions of Python and Polars make in their own ways. Names in brackets are no user's."""


class Describer:
    """Describes values.

    - Equal values have equal descriptions, in any process of the same versions of Python and Polars.
    - Code is known by what it does: bytecode, constants, defaults, what its closure holds, and the globals that it
      reads, followed into the user's own functions, classes and modules. Where it stands, how it is laid out, its
      comments, docstrings and the names of local variables do not count. Installed libraries are known by name.
    - An expression is known by its text and a digest of its serialised form, in which functions are described as such.
    - Of anything else the parts count that a pickle would have. It never fails: what tells nothing is its type.
    """

    def __init__(self) -> None:
        self._open: list[int] = []
        self._known: dict[int, tuple[object, Json]] = {}
        self._left = MAX_VALUES

    def plain(self, value: object) -> Json:
        """A value as plain data."""
        self._left -= 1
        if self._left < 0 or len(self._open) > MAX_DEPTH:
            return {"(type)": _name(type(value))}
        match value:
            case Enum():
                return {"(enum)": f"{_name(type(value))}.{value.name}", "(value)": self.plain(value.value)}
            case None | bool() | int():
                return value
            case float():
                return value if math.isfinite(value) else {"(float)": str(value)}
            case str():
                return (
                    value
                    if len(value) <= SHOWN_LETTERS
                    else {"(text)": value[:40], "(checksum)": digest(value.encode())}
                )
            case bytes() | bytearray():
                return {"(bytes)": len(value), "(checksum)": digest(bytes(value))}
            case PurePath():
                return str(value)
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._open:
            return {"(again)": len(self._open) - self._open.index(id(value))}
        self._open.append(id(value))
        try:
            plain = self._composed(value)
        finally:
            self._open.pop()
        self._known[id(value)] = value, plain  # with the value, so that its id stays its own
        return plain

    def _composed(self, value: object) -> Json:
        match value:
            case list() | tuple():
                return [self.plain(item) for item in value]
            case set() | frozenset():
                return {"(set)": sorted((self.plain(item) for item in value), key=canonical)}
            case pl.Schema():
                return {**{name: str(kind) for name, kind in value.items()}, "(order)": list(value)}
            case Mapping():
                return {self._key(key): self.plain(item) for key, item in value.items()}
            case pl.Expr():
                return self.expression(value)
            case pl.DataType():
                return str(value)
            case type():
                return str(value) if issubclass(value, pl.DataType) else self._class(value)
            case functools.partial():
                parts = {"(of)": self.plain(value.func), "(given)": self.plain(value.args)}
                return {"(partial)": {**parts, **{name: self.plain(item) for name, item in value.keywords.items()}}}
            case FunctionType():
                return self._function(value)
            case MethodType():
                return {"(method)": self.plain(value.__func__), "(of)": self.plain(value.__self__)}
            case staticmethod() | classmethod():
                return self.plain(value.__func__)
            case property():
                return [self.plain(accessor) for accessor in (value.fget, value.fset) if accessor is not None]
            case BuiltinFunctionType():
                return {"(library)": f"{value.__module__}.{value.__qualname__}"}
            case ModuleType():
                return {"(module)": value.__name__}
            case CodeType():
                return self._code(value)
        wrapped = getattr(value, "__wrapped__", None)
        return self.plain(wrapped) if isinstance(wrapped, FunctionType) else self._object(value)

    def _key(self, key: object) -> str:
        return key if isinstance(key, str) else canonical(self.plain(key))

    def expression(self, value: pl.Expr) -> Json:
        """An expression: its text to be read, and a digest that holds what the text leaves out."""
        sys.modules.setdefault("cloudpickle", _cloudpickle())  # Polars looks for it to serialise functions
        try:
            form: Json = self._serialised(json.loads(value.meta.serialize(format="json")))
        except Exception:  # an expression that cannot be serialised cannot travel either: that is said elsewhere
            form = str(value)
        return {
            EXPRESSION: " ".join(str(value).split()),
            "(columns)": sorted(value.meta.root_names()),
            "(name)": value.meta.output_name(raise_if_undetermined=False),
            DIGEST: digest(canonical(form).encode()),
        }

    def _serialised(self, form: Json) -> Json:
        if isinstance(form, Mapping):
            return {name: self._serialised(item) for name, item in form.items()}
        if isinstance(form, list) and form and all(type(item) is int and 0 <= item < 256 for item in form):
            payload = bytes(form)
            return self._pickled(payload) if payload.startswith(_FUNCTION) else form
        return [self._serialised(item) for item in form] if isinstance(form, list) else form

    def _pickled(self, payload: bytes) -> Json:
        """A Python function within an expression, which this process has pickled itself a moment ago."""
        at = min((place for mark in _PICKLES if (place := payload.find(mark)) >= 0), default=-1)
        if at < 0:
            return digest(payload)
        version = bytes(sys.version_info[1:3])
        head = payload[:at].removesuffix(version)
        return {"(types)": head.hex(), "(called)": self.plain(_cloudpickle().loads(payload[at:]))}

    def _function(self, function: FunctionType) -> Json:
        if is_library(function.__module__):
            named = {"(library)": f"{function.__module__}.{function.__qualname__}"}
            held = self._closure(function)
            return {**named, "(closure)": held} if held else named
        known: dict[str, Json] = {FUNCTION: function.__name__, CODE: self._code(function.__code__)}
        parts = {
            "(defaults)": self.plain(function.__defaults__ or ()),
            "(keywords)": self.plain(function.__kwdefaults__ or {}),
            "(closure)": self._closure(function),
            "(globals)": self._globals(function),
        }
        return known | {name: item for name, item in parts.items() if item}

    def _closure(self, function: FunctionType) -> dict[str, Json]:
        values: dict[str, Json] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                values[name] = self.plain(cell.cell_contents)
            except ValueError:  # not filled yet
                values[name] = None
        return values

    def _globals(self, function: FunctionType) -> dict[str, Json]:
        """The globals that a function reads, and of the user's own modules what it reads of them."""
        names, read = _reads(function.__code__)
        values: dict[str, Json] = {}
        for name in sorted(names):
            if name not in function.__globals__:
                continue  # a builtin, or nothing
            value = function.__globals__[name]
            if isinstance(value, ModuleType) and not is_library(value.__name__):
                values[name] = {
                    attribute: self.plain(getattr(value, attribute))
                    for attribute in sorted(read)
                    if hasattr(value, attribute)
                }
            else:
                values[name] = self.plain(value)
        return values

    def _code(self, code: CodeType) -> str:
        """A digest of what code does."""
        constants = list(code.co_consts)
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in _NO_DOCSTRING:
            constants[:1] = [None]  # the docstring, or none
        arguments = code.co_argcount + code.co_kwonlyargcount
        taken = arguments + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        form: Json = [
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _KINDS_OF_CALL],
            list(code.co_varnames[:taken]),
            [list(code.co_names), list(code.co_freevars), len(code.co_cellvars)],
            [self._constant(item) for item in constants],
        ]
        return digest(canonical(form).encode())

    def _constant(self, value: object) -> Json:
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, tuple):
            return [self._constant(item) for item in value]
        return {"(set)": sorted(map(repr, value))} if isinstance(value, frozenset) else repr(value)

    def _class(self, kind: type) -> Json:
        """A class of the user's with all that it and its bases define; one of a library by its name."""
        if is_library(kind.__module__):
            return {"(library)": _name(kind)}
        members: dict[str, Json] = {}
        for base in reversed(kind.__mro__):
            if not is_library(base.__module__):
                members |= {
                    name: self.plain(member)
                    for name, member in sorted(vars(base).items())
                    if _is_member(name, member) and not is_slot(member)
                }
        bases = [_name(base) for base in kind.__mro__ if is_library(base.__module__)]
        return {CLASS: kind.__name__, "(members)": members, "(bases)": bases}

    def _object(self, value: object) -> Json:
        kind = self._class(type(value))
        if is_dataclass(value):
            held = {part.name: getattr(value, part.name) for part in fields(value) if hasattr(value, part.name)}
            return {"(type)": kind, **{name: self.plain(item) for name, item in held.items()}}
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # locks, files, connections: they cannot travel either
            parts = None
        if not isinstance(parts, tuple):
            return {"(type)": kind}
        if getattr(parts[0], "__name__", "") == "__newobj__" and type(value).__getstate__ is object.__getstate__:
            return {"(type)": kind, **{name: self.plain(item) for name, item in attributes(value).items()}}
        given = [argument for argument in parts[1] if argument is not type(value)]
        state: object = parts[2] if len(parts) > 2 else None
        listed = [list(part) for part in parts[3:5] if isinstance(part, Iterable)]
        named = {str(name): self.plain(item) for name, item in state.items()} if isinstance(state, dict) else {}
        rest = [self.plain(given), None if named else self.plain(state), self.plain(listed)]
        return {"(type)": kind, **named, **({"(made of)": rest} if any(rest) else {})}


def described(parameters: Mapping[str, object]) -> dict[str, Json]:
    """Parameters as plain data, by their names without the underscore that makes some private."""
    describer = Describer()
    private = {name: name.lstrip("_") for name in parameters if name.startswith("_")}
    names = {name: name if short in parameters else short for name, short in private.items()}
    return {names.get(name, name): describer.plain(value) for name, value in parameters.items()}


def code_of(value: object) -> Json:
    """What the user has written of an object's class; nothing if a library has it."""
    kind = type(value)
    return None if is_library(kind.__module__) else Describer().plain(kind)


def is_library(module: str | None) -> bool:
    """Whether a module is installed rather than written by the user: it is known by its name."""
    imported = sys.modules.get(module or "")
    if imported is None:
        return False
    file = getattr(imported, "__file__", None)
    if file is None:
        return imported.__name__ in sys.builtin_module_names
    folders = [str(folder) for folder in Path(file).resolve().parents]
    return _EXAMPLES not in folders and not _LIBRARIES.isdisjoint(folders)


def is_slot(member: object) -> bool:
    """Whether a member only says where an attribute lies."""
    return inspect.ismemberdescriptor(member) or inspect.isgetsetdescriptor(member)


def canonical(value: Json) -> str:
    """Plain data as text, without labels: equal for equal data, different for 1, 1.0 and true."""
    return json.dumps(_compared(value), sort_keys=True, separators=(",", ":"))


def digest(payload: bytes) -> str:
    """Bytes in a few letters."""
    return hashlib.sha256(payload).hexdigest()[:24]


def _compared(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _compared(item) for name, item in value.items() if name not in LABELS}
    return [_compared(item) for item in value] if isinstance(value, list | tuple) else value


def _reads(code: CodeType) -> tuple[set[str], set[str]]:
    """The names of globals and of attributes that code reads, functions within it included."""
    names: set[str] = set()
    read: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            names.add(str(instruction.argval))
        elif instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            read.add(str(instruction.argval))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more, others = _reads(inner)
            names, read = names | more, read | others
    return names, read


def _is_member(name: str, member: object) -> bool:
    special = name.startswith("__") and name.endswith("__")
    return name not in {"_abc_impl"} and (not special or isinstance(member, FunctionType | staticmethod | classmethod))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _cloudpickle() -> ModuleType:
    """The one that comes with Spark, which knows what travels by value; importing Spark takes a while."""
    from pyspark import cloudpickle

    return cloudpickle

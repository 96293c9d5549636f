"""Reading and writing YAML and JSON files from outside: bounded, without surprises, errors in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from tenax.errors import InvalidFile
from tenax.model.topology import suggestion

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_YAML_NODES = 20_000_000  # aliases may repeat a part: a small file must not become an endless one
JSON_SUFFIX = ".json"


class Document(BaseModel):
    """A part of a file: no unknown keys, no silent conversions, no NaN."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_by_name=True, validate_by_alias=True
    )


Model = TypeVar("Model", bound=Document)


def read_document(path: Path) -> object:
    """The plain data of a YAML or JSON file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidFile(f"{path}: files have at most {MAX_FILE_BYTES:,} bytes: use lists and defaults sparingly")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidFile(f"{path}: no such file: check the path") from None
    except IsADirectoryError:
        raise InvalidFile(f"{path}: a file is expected, found a folder: name a file in it") from None
    except UnicodeDecodeError as error:
        raise InvalidFile(
            f"{path}: text in UTF-8 is expected, found byte {error.start} not to be: save it so"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: cannot be read ({_one_line(error)}): check the path and its permissions") from None
    try:
        if path.suffix == JSON_SUFFIX:
            return json.loads(text, object_pairs_hook=_unique_pairs)
        return yaml.load(text, Loader=_Loader)
    except json.JSONDecodeError as error:
        raise InvalidFile(f"{path}: not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidFile(f"{path}: not YAML: {_one_line(error.problem or error)}{where}") from None
    except yaml.YAMLError as error:
        raise InvalidFile(f"{path}: not YAML: {_one_line(error)}") from None
    except RecursionError:
        raise InvalidFile(f"{path}: nested too deeply: flatten it") from None
    except ValueError as error:
        raise InvalidFile(f"{path}: {_one_line(error)}") from None


def write_document(path: Path, data: Mapping[str, object]) -> None:
    """Plain data as a YAML or JSON file, by suffix; what was written reads back equal."""
    if path.suffix == JSON_SUFFIX:
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    else:
        text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be written ({_one_line(error)}): check the folder") from None


def validated(model: type[Model], data: object, path: Path) -> Model:
    """The data as a model, or the first thing wrong with it in one line."""
    if not isinstance(data, dict):
        wanted = ", ".join(name for name, field in model.model_fields.items() if field.is_required())
        raise InvalidFile(f"{path}: a mapping with {wanted} is expected, found {_shown(data)}: see the example files")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidFile(f"{path}: {_explained(model, data, error.errors())}") from None


class _Loader(yaml.SafeLoader):
    """Safe YAML with three differences: keys are unique, 1e3 is a number, and aliases cannot explode."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _expanded_size(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} twice", key.start_mark)
                seen.add(key.value)
        result: dict[object, object] = super().construct_mapping(node, deep=deep)
        return result


# YAML 1.1 reads 1e3 as text; people mean a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+"),
    list("-+0123456789"),
)


def _expanded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of nodes with every alias written out; refuses endless documents."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = MAX_YAML_NODES + 1  # what a node inside itself would count as
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_expanded_size(child, known) for child in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_expanded_size(key, known) + _expanded_size(value, known) for key, value in node.value)
    if size > MAX_YAML_NODES:
        raise yaml.composer.ComposerError(None, None, f"more than {MAX_YAML_NODES:,} values", node.start_mark)
    known[id(node)] = size
    return size


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"keys are unique, found {twice!r} twice: remove one")
    return result


def _explained(model: type[Document], data: object, errors: Sequence[ErrorDetails]) -> str:
    """The first error, with its place in the words of the file."""
    error = _relevant(data, errors)
    place = [part for part in error["loc"] if not _is_branch(part)]
    value = _at(data, place)
    where = _place(data, place)
    inside = _place(data, place[:-1], end=": ")
    match error["type"]:
        case "extra_forbidden":
            known = _known_keys(model, place)
            return f"{inside}unknown key {place[-1]!r}{suggestion(str(place[-1]), known)}"
        case "missing":
            return f"{inside}{place[-1]!r} is missing: add it"
        case "literal_error":
            expected = str(error.get("ctx", {}).get("expected", "")).replace("'", "")
            return f"{where}must be {expected}, found {_shown(value)}: use one of them"
        case "greater_than_equal" | "greater_than" | "less_than_equal":
            return f"{where}{_lower(error['msg'])}, found {_shown(value)}: correct it"
        case "finite_number":
            return f"{where}must be a finite number, found {_shown(value)}: correct it"
        case "string_type":
            return f"{where}must be text, found {_shown(value)}: put it in quotes"
        case "string_pattern_mismatch":
            return (
                f"{where}must be lower-case letters, digits, '-' and '_', a letter first; "
                f"found {_shown(value)}: rename it"
            )
        case _:
            return f"{where}{_lower(error['msg'])}, found {_shown(value)}: correct it"


def _relevant(data: object, errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """The error to speak of: a misspelt key before what it makes missing, and the branch of a union that was meant."""
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    for error in unknown or errors:
        branches = [position for position, part in enumerate(error["loc"]) if _is_branch(part)]
        if not branches:
            return error
        meant = _at(data, error["loc"][: branches[0]])
        if isinstance(meant, list) == str(error["loc"][branches[0]]).startswith("list["):
            return error
    return errors[0]


def _is_branch(part: str | int) -> bool:
    """Whether a part of an error's place names a branch of a union, not a place in the file."""
    return isinstance(part, str) and (part == "float" or part.startswith(("list[", "constrained-")))


def _at(data: object, place: Sequence[str | int]) -> object:
    for part in place:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _place(data: object, place: Sequence[str | int], end: str = " ") -> str:
    """`operator 'speed': weights[2] `: named things by their name, the rest by path."""
    text, path = "", ""
    for position, part in enumerate(place):
        if isinstance(part, int):
            item = _at(data, place[: position + 1])
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str):
                text += f"{path.rstrip('s')} {name!r}: "
                path = ""
            else:
                path += f"[{part}]"
        else:
            path += f".{part}" if path else str(part)
    return f"{text}{path}{end}" if path else text


def _known_keys(model: type[Document], place: Sequence[str | int]) -> list[str]:
    """The keys allowed where an unknown one was found, by walking the model's own JSON Schema."""
    schema = model.model_json_schema(by_alias=True)
    here: object = schema
    for part in [*place[:-1], None]:
        while isinstance(here, dict) and ("$ref" in here or "anyOf" in here):
            here = _resolved(schema, here)
        if part is None or not isinstance(here, dict):
            break
        here = here.get("items") if isinstance(part, int) else here.get("properties", {}).get(part)
    return list(here.get("properties", {})) if isinstance(here, dict) else []


def _resolved(schema: dict[str, object], here: dict[str, object]) -> object:
    reference = here.get("$ref")
    if isinstance(reference, str):
        definitions = schema.get("$defs")
        return definitions.get(reference.rsplit("/", 1)[-1]) if isinstance(definitions, dict) else None
    options = here.get("anyOf")
    return next((option for option in options if "$ref" in option), None) if isinstance(options, list) else None


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return f"a list of {len(value)}"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 40 else value[:37] + "...")
        case _:
            return str(value)[:40]


_WORDS = {
    "Input should be": "must be",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid ": "a ",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}


def _lower(message: str) -> str:
    """Pydantic's message in the words of a user, as the middle of a sentence."""
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return re.sub(r"a dictionary.*", "a mapping", message)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())

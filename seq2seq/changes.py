"""The functions of the paper that have changed since fast forms and reports were tested with them.

`tested.json` has a digest of each function of the files below, docstrings and comments left out.
Whoever changes a function and has changed and tested the fast forms with it, too, writes the file
anew: `python scripts/digests.py`.
"""

import ast
import hashlib
import inspect
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

logger = logging.getLogger("seq2seq")

PACKAGE = "seq2seq"
MODEL = ("transformer", "zoo.variants", "zoo.modern")
MODULES = (*MODEL, "loss", "update", "search")
_LAYERS = (nn.ModuleList, nn.Linear, nn.LayerNorm, nn.Dropout, nn.Identity)
"""The modules of PyTorch that a model consists of."""
_KNOWN = (
    "builtins",
    "typing",
    "torch",
    f"{PACKAGE}.decoder",
    f"{PACKAGE}.decoding",
    f"{PACKAGE}.fast",
    *(f"{PACKAGE}.{name}" for name in MODEL),
)
"""The modules and packages whose classes and functions are known."""


@cache
def tested() -> dict[str, str]:
    """Read the digests of the functions with which the fast forms were tested, by their names."""
    digests: dict[str, str] = json.loads(files(PACKAGE).joinpath("tested.json").read_bytes())
    return digests


def changed_code(model: nn.Module) -> list[str]:
    """Return the names of what is changed in the code of a model: functions, then own classes."""
    return [*changed_functions(*MODEL), *changed_classes(model)]


def report_unused(form: str, changed: Sequence[str]) -> None:
    """Warn that a fast form is not used, because it doesn't do what the changed code does."""
    names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    logger.warning(
        f"{names} changed, so the plain code is used instead of {form}: slower, with the change in"
        " it; see seq2seq/CHANGE.md"
    )


def changed_functions(*modules: str) -> list[str]:
    """Return the names of functions that have changed, such as `transformer.attention()`."""
    return list(digests_of_edits(*modules))


def digests_of_edits(*modules: str) -> dict[str, str]:
    """Return the digests of functions that have changed, by their names; "" if one is gone."""
    edits = {}
    for name in modules:
        if module := sys.modules.get(f"{PACKAGE}.{name}"):
            now = digests(module)
            before = {key: d for key, d in tested().items() if key.startswith(f"{name}:")}
            for key in before | now:
                if before.get(key) != now.get(key) and not key.endswith(":file"):
                    edits[key.replace(":", ".")] = now.get(key, "")
    return edits


def changed_classes(model: nn.Module) -> list[str]:
    """Return the names of a model's classes that are not known, and of the methods they replace.

    A method of `Transformer` that a subclass or an instance has in another form is called
    `transformer.Transformer.project()`, as if its file were edited; so is `forward`, if the model
    has a hook. Hooks of other modules, a module in several places and a function of one's own as an
    attribute, such as an activation, have names as well.
    """
    names, met = dict[str, None](), set[nn.Module]()
    for _, module in model.named_modules(remove_duplicate=False):
        types = type(module).__mro__
        if module in met:
            names[f"{types[0].__qualname__} in several places"] = None
            continue
        met.add(module)
        if has_hooks(module):
            hooked = "transformer.Transformer.forward()" if module is model else "a hook of {}"
            names[hooked.format(types[0].__qualname__)] = None
        own = [each for each in types if is_own(each.__module__)]
        if own or (types[0].__module__.startswith("torch.") and types[0] not in _LAYERS):
            names[types[0].__qualname__] = None
        replaced = {key for each in own for key, v in vars(each).items() if callable(v)}
        of_instance = {key for key, v in vars(module).items() if callable(v)}
        # Python 3.14 makes a function of the annotations of a class.
        for key in sorted((replaced | of_instance) - {"__init__", "__annotate_func__"}):
            for each in types:
                if each not in own and isinstance(vars(each).get(key), FunctionType | property):
                    start = each.__module__.removeprefix(f"{PACKAGE}.")
                    names[f"{start}.{each.__qualname__}.{key}()"] = None
                    break
            else:
                function = vars(module).get(key)
                if is_own(getattr(function, "__module__", None) or "builtins"):
                    names[f"{types[0].__qualname__}.{key}()"] = None
    return list(names)


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module has hooks of its forward pass."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def is_own(module: str) -> bool:
    """Return whether what a module of this name defines is a user's own."""
    return not any(f"{module}.".startswith(f"{known}.") for known in _KNOWN)


def digest_of_classes(model: nn.Module) -> str:
    """Digest the files that define a model's own classes; return "" for a model without any.

    Files that can't be read, such as those within an archive, are left out.
    """
    names = {each.__module__ for module in model.modules() for each in type(module).__mro__}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in names if is_own(name)}
    contents = []
    for file in sorted(filter(None, files)):
        with suppress(OSError):
            contents.append(Path(file).read_bytes() + b"\0")
    return hashlib.sha256(b"".join(contents)).hexdigest()[:12] if contents else ""


def digests(module: ModuleType) -> dict[str, str]:
    """Return the digests of the functions of a module as they are now, and of its whole file.

    The statements outside of functions have one digest for each class, and one for the module.
    """
    prefix = module.__name__.removeprefix(f"{PACKAGE}.")
    of_module = ((key.partition(":"), digest) for key, digest in tested().items())
    found = {name: digest for (start, _, name), digest in of_module if start == prefix}
    content = _source(module)
    file = hashlib.sha256(content).hexdigest()[:8]
    if content and file != found.get("file"):
        found = {"file": file, **_parsed(content)}
    replaced = {name: "replaced" for name in found if _is_replaced(module, name)}
    return {f"{prefix}:{name}": digest for name, digest in (found | replaced).items()}


@cache
def _source(module: ModuleType) -> bytes:
    """Read the file of a module; without one, which can't be edited, return nothing."""
    try:
        return Path(inspect.getfile(module)).read_bytes()
    except (OSError, TypeError):
        return b""


@cache
def _parsed(source: bytes) -> dict[str, str]:
    """Return the digests of the functions of a file, of its classes and of the rest."""
    found = dict[str, str]()

    def visit(body: list[ast.stmt], prefix: str) -> str:
        rest = list[ast.AST]()
        for node in body:
            if isinstance(node, ast.FunctionDef):
                found[f"{prefix}{node.name}()"] = _digest([node])
            elif isinstance(node, ast.ClassDef):
                head = [*node.bases, *node.keywords, *node.decorator_list]
                inside = visit(node.body, f"{prefix}{node.name}.")
                found[prefix + node.name] = _digest(head) + inside
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                rest.append(node)
        return _digest(rest)

    found["constants"] = visit(ast.parse(source).body, "")
    return found


def _digest(nodes: list[Any]) -> str:
    """Return a digest of code, with docstrings left out."""
    texts = []
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                inner.body = [each for each in inner.body if not _is_text(each)] or [ast.Pass()]
            if isinstance(inner, ast.JoinedStr):  # Python 3.12 may add an empty text
                inner.values = [each for each in inner.values if getattr(each, "value", 0) != ""]
        if not _is_text(node):
            texts.append(_written(node))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def _written(node: Any) -> str:
    """Write a syntax tree in the same way in all versions of Python, unlike `ast.unparse`."""
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    # New versions have further fields, which are empty in what old ones can read.
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    inside = ",".join(f"{name}={_written(value)}" for name, value in fields)
    return f"{type(node).__name__}({inside})"


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_replaced(module: ModuleType, name: str) -> bool:
    """Return whether a function is not the one that its file defines."""
    if not name.endswith("()"):
        return False
    found: Any = module
    for part in name.removesuffix("()").split("."):
        found = vars(found).get(part)
        if found is None:
            return True
    found = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
    code = getattr(found, "__code__", None)
    return code is None or (code.co_filename, f"{code.co_qualname}()") != (module.__file__, name)

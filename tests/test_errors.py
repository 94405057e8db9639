"""Errors: all derive from one class, their tree is documented, and builtins are not raised."""

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import whitelie
from whitelie import errors
from whitelie.errors import InvalidInput, WhitelieError, real_number, whole_number

SOURCE = Path(whitelie.__file__).parent

NEEDS_AN_EXTRA = ("whitelie.simulation.environment",)
"""Modules that need a package which may not be installed; they define no errors."""

CAUGHT = "the caller in this package turns it into None, infinity or another error"
PROTOCOL = "Python asks for an AttributeError here"
AUTHOR = "it tells the author of a policy what is missing; no user's input leads there"
UNREACHABLE = "it says that this line is never reached"
BUILTINS_RAISED = {
    ("__init__.py", "AttributeError"): PROTOCOL,
    ("channel/monotone.py", "AttributeError"): PROTOCOL,
    ("simulation/__init__.py", "AttributeError"): PROTOCOL,
    ("client/parse.py", "ValueError"): CAUGHT,
    ("client/pending_report.py", "ValueError"): CAUGHT,
    ("client/pending_report.py", "TypeError"): CAUGHT,
    ("client/ledger.py", "ValueError"): CAUGHT,
    ("client/decision.py", "ValueError"): CAUGHT,
    ("kernel/rule.py", "TypeError"): AUTHOR,
    ("policy/policy.py", "NotImplementedError"): AUTHOR,
    ("service/experiment/changes.py", "AssertionError"): UNREACHABLE,
    ("service/store/sqlite/store.py", "OSError"): CAUGHT,
    ("testing/store_contract.py", "NotImplementedError"): "a fixture that must be overridden",
}
"""Files that raise a builtin all the same, and why it never reaches a user as an error."""


def exception_classes() -> set[type[BaseException]]:
    """Every exception class that a module of the package defines."""
    defined = set()
    for module in pkgutil.walk_packages(whitelie.__path__, "whitelie."):
        if module.name not in ("whitelie.__main__", *NEEDS_AN_EXTRA):
            members = vars(importlib.import_module(module.name)).values()
            classes = [each for each in members if inspect.isclass(each)]
            defined |= {each for each in classes if each.__module__ == module.name}
    return {each for each in defined if issubclass(each, BaseException)}


def documented_tree() -> dict[str, tuple[str, str | None]]:
    """Each class in the docstring: its parent there, and the builtin in parentheses."""
    tree: dict[str, tuple[str, str | None]] = {}
    parents: dict[int, str] = {}
    for line in (errors.__doc__ or "").split("```")[1].splitlines()[1:]:
        branch, name, builtin = re.findall(r"^([│├└─ ]*)([\w.]+)(?: \((\w+)\))?", line)[0]
        depth = len(branch) // 4
        if name.startswith("whitelie."):
            parents[depth] = parents[depth - 1]  # a package groups its classes
            continue
        tree[name] = (parents.get(depth - 1, ""), builtin or None)
        parents[depth] = name
    return tree


def raised_builtins(source: str) -> Iterator[str]:
    """The names of builtin exceptions that `raise` statements of a module name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            kind = getattr(builtins, raised.id, None) if isinstance(raised, ast.Name) else None
            if inspect.isclass(kind) and issubclass(kind, BaseException):
                yield kind.__name__


def test_every_error_derives_from_one_class() -> None:
    others = [each for each in exception_classes() if not issubclass(each, WhitelieError | Warning)]
    assert others == []


def test_the_documented_tree_is_that_of_the_classes() -> None:
    errors_only = [each for each in exception_classes() if not issubclass(each, Warning)]
    classes = {each for each in errors_only if not each.__name__.startswith("_")}
    actual = {}
    for each in classes:
        ours, *others = each.__bases__
        parent = ours.__name__ if ours in classes else ""
        actual[each.__name__] = (parent, others[0].__name__ if others else None)
    assert documented_tree() == actual


def test_only_listed_files_raise_builtins() -> None:
    raised = {
        (path.relative_to(SOURCE).as_posix(), kind)
        for path in SOURCE.rglob("*.py")
        for kind in raised_builtins(path.read_text(encoding="utf-8"))
    }
    assert raised == set(BUILTINS_RAISED)


def test_a_raised_builtin_is_seen() -> None:
    assert [*raised_builtins("def f():\n raise ValueError")] == ["ValueError"]
    assert [*raised_builtins("raise OSError(1) from None")] == ["OSError"]
    assert [*raised_builtins("raise InvalidInput('a', 1, '')\nraise error")] == []


@pytest.mark.parametrize("value", [True, 1.5, "1", None, -1, 11])
def test_what_is_no_whole_number_of_the_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="whole number from 0 to 10"):
        whole_number("seed", value, most=10)


@pytest.mark.parametrize("value", [True, "0.5", b"0", None, float("nan"), -0.1, 1.1, 10**400])
def test_what_is_no_number_of_the_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="in the unit interval"):
        real_number("p00", value, "give a number in the unit interval", least=0, most=1)

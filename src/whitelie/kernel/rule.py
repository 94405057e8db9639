"""A policy's compiled rule: what it is, what it declares, and how loops find it by its type.

A rule is a NamedTuple of numbers, of a type that belongs to one policy. The loops of the kernel are
written once and take any rule; inside them `value(rule, …)` is the implementation that was
registered for the rule's type. numba settles that when it compiles a loop for a rule, so there is
no look-up in compiled code, and a first decision compiles its own rule and no other.

To choose, a loop asks

    shared(rule, arms, state)                         a number that all arms share, such as f(t)
    value(rule, arms, state, k, shared, word)         the arm of the largest value is chosen
    update(rule, arms, state, k, bit)                 after a feedback, for rules with memory

A rule must have a value, or a `choose` of its own (`choice.py`). Without any other registration
nothing is shared and nothing remembered, decisions are taken one by one, and simulation is that of
`plain.py`. An index gives ∞ to an arm that `is_untried`, so that each is pulled once. Counts and
bits are as they were reported: `mean_of` and `posterior` turn them where `arms.mirrored` says that
the channel decreases, and a rule that corrects what it remembers must do so too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from numba.extending import overload

from whitelie.kernel.arms import Arms
from whitelie.kernel.jit import INLINE, jit
from whitelie.kernel.state import State
from whitelie.kernel.words import ZERO

Rule = Any
"""The rule of some policy: a NamedTuple of numbers, of a type made known by `declare`."""

Function = TypeVar("Function", bound=Callable[..., Any])
RuleType = TypeVar("RuleType", bound=type)


@dataclass(frozen=True)
class Declaration:
    """What a rule needs, and what it permits.

    `local`: an arm's value depends on its own counts, its pending decisions and the shared number
    alone, not on its word, and the shared number does not depend on pending decisions. So a
    decision changes the value of the chosen arm only, and all others need not be computed again.
    `memory`: how many numbers per arm the rule keeps beyond the counts, all 0 at first.
    """

    local: bool = False
    memory: int = 0


_DECLARATIONS: dict[type, Declaration] = {}


def declare(*, local: bool = False, memory: int = 0) -> Callable[[RuleType], RuleType]:
    """Make a NamedTuple a rule, and say what `Declaration` says."""

    def record(kind: RuleType) -> RuleType:
        _DECLARATIONS[kind] = Declaration(local, memory)
        return kind

    return record


def declaration_of(rule: Rule) -> Declaration:
    """Return what the type of a rule declared."""
    return _declaration(type(rule))


def _declaration(kind: type) -> Declaration:
    if kind not in _DECLARATIONS:
        raise TypeError(f"{kind.__name__} is no rule: decorate it with @declare(…)")
    return _DECLARATIONS[kind]


class ByRule:
    """A function whose implementation depends on the type of the rule, its first argument.

    It is the one registered for the type; else `local` if the rule is local and there is one; else
    the default. One that was registered with a type of arms serves where the second argument is
    such arms. Called from compiled code it is resolved by numba, else here.
    """

    def __init__(
        self,
        name: str,
        default: Callable[..., Any] | None = None,
        local: Callable[..., Any] | None = None,
    ) -> None:
        self.__name__, self._default, self._local = name, default, local
        self._registered: dict[tuple[type, type | None], Callable[..., Any]] = {}

        def resolve(rule: Any, *others: Any) -> Callable[..., Any]:
            arms = getattr(others[0], "instance_class", None) if others else None
            function = self._implementation(rule.instance_class, arms)
            return getattr(function, "py_func", function)

        overload(self, strict=False, jit_options=INLINE)(resolve)

    def __call__(self, rule: Rule, *arguments: Any) -> Any:
        """Call the implementation from Python."""
        arms = type(arguments[0]) if arguments else None
        return self._implementation(type(rule), arms)(rule, *arguments)

    def register(self, kind: type, arms: type | None = None) -> Callable[[Function], Function]:
        """Compile a function, and let it be called with rules of this type, on any or some arms."""

        def record(function: Function) -> Function:
            compiled = function if hasattr(function, "py_func") else jit(function)
            self._registered[kind, arms] = compiled
            return compiled

        return record

    def _implementation(self, kind: type, arms: type | None) -> Callable[..., Any]:
        declaration = _declaration(kind)
        for key in ((kind, arms), (kind, None)):
            if key in self._registered:
                return self._registered[key]
        chosen = self._local if declaration.local and self._local else self._default
        if chosen is None:
            raise TypeError(f"{kind.__name__} has no {self.__name__}: register one")
        return chosen


class ByArms:
    """A function whose implementation depends on how arms are packed, its first argument."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._registered: dict[type, Callable[..., Any]] = {}

        def resolve(arms: Any, *_: Any) -> Callable[..., Any]:
            function = self._registered[arms.instance_class]
            return getattr(function, "py_func", function)

        overload(self, strict=False, jit_options=INLINE)(resolve)

    def __call__(self, arms: Any, *arguments: Any) -> Any:
        """Call the implementation from Python."""
        return self._registered[type(arms)](arms, *arguments)

    def register(self, kind: type) -> Callable[[Function], Function]:
        """Let a compiled function be called with arms of this type."""

        def record(function: Function) -> Function:
            self._registered[kind] = function
            return function

        return record


@jit
def share_nothing(rule: Rule, arms: Arms, state: State) -> float:
    """Return a number that nobody reads."""
    return 0.0


@jit
def remember_nothing(rule: Rule, arms: Arms, state: State, k: int, one: int) -> None:
    """Do nothing: counts are all that the rule knows."""


shared = ByRule("shared", share_nothing)
value = ByRule("value")
update = ByRule("update", remember_nothing)


def columns(rule: Rule) -> int:
    """Return how many numbers per arm the rule keeps beyond the counts."""
    return declaration_of(rule).memory


def _compiled_columns(rule: Any) -> Callable[[Rule], int]:
    number = ZERO + _declaration(rule.instance_class).memory
    return lambda rule: number


overload(columns, strict=False, jit_options=INLINE)(_compiled_columns)

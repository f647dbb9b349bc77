"""Errors that the user can fix: each is one line that says what is wrong, where, and what to do."""

import operator


def printable(text: str) -> str:
    """Return a text with escapes in place of what a terminal obeys; line ends and tabs stay.

    So do bytes of file names that are not UTF-8.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" or "\udc80" <= c <= "\udcff" else ascii(c)[1:-1]
        for c in text
    )


class UserError(Exception):
    """Bad data, a bad run or a bad model folder: the command ends with exit code 1."""

    def __str__(self) -> str:
        """Return the message on one line, whatever path or file content it quotes."""
        words = " ".join(super().__str__().splitlines())
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


class EngineError(UserError):
    """A model or an engine can't compute what it should, whatever the text."""


class OutOfMemoryError(EngineError):
    """The memory of the device or of the machine is used up."""


class UsageError(UserError):
    """Arguments or options that are not accepted: the command ends with exit code 2."""


_BOUNDS = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


def check_number(name: str, value: float | None, **bounds: float) -> None:
    """Check a number, unless it is None, by bounds such as `at_least=0, below=1`."""
    if value is not None and not all(_BOUNDS[kind](value, bounds[kind]) for kind in bounds):
        rules = (f"{kind.replace('_', ' ')} {bound:,}" for kind, bound in bounds.items())
        raise UsageError(f"{name}={value}: must be {' and '.join(rules)}")


def reason_of(error: BaseException) -> str:
    """Return the first line of what an error says, or its type if it says nothing."""
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None)
    lines = str(reason or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# Messages of PyTorch, oneDNN, NumPy and Arrow, whose errors have no class in common.
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "could not create a memory object",
    "could not create a primitive",
    "bad_alloc",
    "unable to allocate",
)


def out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Make a user error from a library's error if it means that memory has run out."""
    words = str(error).lower()
    is_said = isinstance(error, RuntimeError) and any(text in words for text in _OUT_OF_MEMORY)
    if not is_said and not isinstance(error, MemoryError):
        return None
    return OutOfMemoryError(
        "out of memory: close other programs, or use a smaller model, batch or beam; a run with"
        " a checkpoint continues with resume=true"
    )

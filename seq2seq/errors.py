"""The errors that a person can mend: each is one line that says what, where and what to do."""


class UserError(Exception):
    """Bad data, a bad run or a bad model folder: the command ends with exit code 1."""

    def __str__(self) -> str:
        """The message on one line, though it may quote a path or a file that holds anything."""
        words = " ".join(super().__str__().splitlines())
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


class UsageError(UserError):
    """A command called with arguments that it can't take: the command ends with exit code 2."""

"""Errors that the user can fix: each is one line that says what is wrong, where, and what to do."""


class UserError(Exception):
    """Bad data, a bad run or a bad model folder: the command ends with exit code 1."""

    def __str__(self) -> str:
        """Return the message on one line, whatever path or file content it quotes."""
        words = " ".join(super().__str__().splitlines())
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


class UsageError(UserError):
    """Arguments that a command does not accept: the command ends with exit code 2."""

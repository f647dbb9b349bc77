"""The errors that a person can mend: each is one line that says what, where and what to do."""


class UserError(Exception):
    """Bad data, a bad run or a bad model folder: the command ends with exit code 1."""


class UsageError(UserError):
    """A command called with arguments that it can't take: the command ends with exit code 2."""

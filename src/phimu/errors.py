"""The one exception for bad input: a single sentence that names the field and the fix."""


class InputError(Exception):
    """Something the user gave cannot be used; the command line prints it and exits with 2."""

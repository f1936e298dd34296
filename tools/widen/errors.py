"""What the parts of the widener raise."""


class WidenError(Exception):
    """What is wrong with the input or the machine, in words for the user."""

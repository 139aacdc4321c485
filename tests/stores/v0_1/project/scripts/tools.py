def double(number: int) -> int:
    """Return twice the number."""
    return 2 * int(number)

def is_number(text: str, max_digits: int) -> bool:
    """True for at most `max_digits` ASCII digits: int() refuses digits such as ², and thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= max_digits

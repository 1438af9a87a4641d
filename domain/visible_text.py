"""How is text from elsewhere shown so that it cannot pass for something else?"""

# Everything a terminal acts on, or draws as nothing: controls, formats (bidi marks among them), surrogates,
# private and unassigned characters, and the two separators that some terminals break a line at.
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def visible(text: str) -> str:
    r"""Return `text` on one line, its control, escape and bidi characters written as `\x1b` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    # Imported for text that needs it: most names are plain ASCII.
    from unicodedata import category  # noqa: PLC0415

    return "".join(_escaped(character) if category(character) in _HIDDEN else character for character in text)


def visible_start(text: str, most: int) -> str:
    """Return `visible(text)`, of a long text only so many characters and a mark that there were more."""
    return visible(text) if len(text) <= most else f"{visible(text[:most])} […]"


def _escaped(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

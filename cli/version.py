"""Which version is this? Kept as a constant: asking the installed metadata would cost more than starting Python."""

VERSION = "0.1.0"

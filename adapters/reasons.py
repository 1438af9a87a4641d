"""What does a person read of an operating system's error?"""


def reason_of(error: OSError) -> str:
    """Return the error's own words in lower case, to stand within a sentence."""
    return (error.strerror or str(error)).lower()

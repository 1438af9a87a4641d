"""What does the `.env` file beside a manifest say? It may hold secrets, so no error repeats any of it."""

import re
from io import StringIO
from pathlib import Path

from dotenv.parser import Binding, parse_stream

from murmur.adapters.small_files import UnreadFile, line_at, read_small_file
from murmur.domain.errors import EnvFileRefused
from murmur.domain.visible_text import visible

ENV_FILE_LIMIT = 256 * 1024
LINES_LIMIT = 2_000
BLANKS_LIMIT = 200
"""Blanks in a row. The parser's time grows with the square of them."""

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANKS = re.compile(rf"[^\S\r\n]{{{BLANKS_LIMIT + 1}}}")


def read_env_file(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables that the file sets, and a warning for each line that sets none though it names one.

    Values are taken as they stand: nothing is put in for `${NAME}`. Empty when there is no file. Raises
    `EnvFileRefused`, which names the path and the first line that cannot be read.
    """
    try:
        content = read_small_file(path, ENV_FILE_LIMIT)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        return {}, []
    except UnreadFile as error:
        raise _refused(path, str(error)) from None
    except UnicodeDecodeError as error:
        raise _refused(path, "it is not UTF-8", line_at(error.object, error.start)) from None
    if "\0" in text:
        raise _refused(path, "it holds a null character", line_at(content, content.index(b"\0")))
    _check_length(path, text)
    values: dict[str, str] = {}
    unset: list[str] = []
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            raise _refused(path, "it is not NAME=VALUE, or a quote does not end", _line_of(binding))
        if binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
        elif binding.key is not None:
            # It may be a secret gone astray, so it is not named.
            unset.append(f"{_place(path, _line_of(binding))}: a name without = sets nothing")
    return values, unset


def _check_length(path: Path, text: str) -> None:
    for number, _ in enumerate(_LINE_END.finditer(text), 1):
        if number > LINES_LIMIT:
            raise _refused(path, f"it has more than {LINES_LIMIT:,} lines")
    if (found := _BLANKS.search(text)) is not None:
        line = len(_LINE_END.findall(text, 0, found.start())) + 1
        raise _refused(path, f"it has more than {BLANKS_LIMIT} blanks in a row", line)


def _line_of(binding: Binding) -> int:
    """Return the line that a statement starts on; the parser counts the empty ones before it as its own."""
    text = binding.original.string
    before = text[: len(text) - len(text.lstrip())]
    return binding.original.line + len(_LINE_END.findall(before))


def _place(path: Path, line: int | None) -> str:
    return visible(str(path)) if line is None else f"{visible(str(path))}:{line}"


def _refused(path: Path, reason: str, line: int | None = None) -> EnvFileRefused:
    return EnvFileRefused(f"{_place(path, line)}: {reason}", hint="mend it, or run without it: --no-env-file")

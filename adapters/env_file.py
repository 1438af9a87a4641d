"""What does the `.env` file beside a manifest say? It may hold secrets, so no error repeats any of it."""

from io import StringIO
from pathlib import Path

from dotenv import dotenv_values

from murmur.adapters.small_files import UnreadFile, line_at, read_small_file
from murmur.domain.errors import EnvFileRefused
from murmur.domain.visible_text import visible

ENV_FILE_LIMIT = 256 * 1024


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables that the file sets, its values as they stand: nothing is put in for `${NAME}`.

    Empty when there is no file. Raises `EnvFileRefused`, which names the path.
    """
    try:
        content = read_small_file(path, ENV_FILE_LIMIT)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except UnreadFile as error:
        raise _refused(path, str(error)) from None
    except UnicodeDecodeError as error:
        raise _refused(path, "it is not UTF-8", line_at(error.object, error.start)) from None
    if "\0" in text:
        raise _refused(path, "it holds a null character", line_at(content, content.index(b"\0")))
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def _refused(path: Path, reason: str, line: int | None = None) -> EnvFileRefused:
    where = visible(str(path)) if line is None else f"{visible(str(path))}:{line}"
    return EnvFileRefused(f"{where}: {reason}", hint="mend it, or run without it: --no-env-file")

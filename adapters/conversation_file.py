"""Hands a command what was said before in its task's conversation: a file in the session's records directory."""

import os
from pathlib import Path

from murmur.adapters.beneath import NotReached, make_private
from murmur.adapters.reasons import reason_of
from murmur.adapters.records_directory import RecordsDirectory
from murmur.adapters.staging import write_staged
from murmur.domain.conversation import conversation_name
from murmur.domain.errors import RecordsUnusable

CONVERSATION_VARIABLE = "MURMUR_CONVERSATION"
"""Tells the command where that file is."""
_FOLDER = "conversations"


def write_conversation(records: RecordsDirectory, context_id: str, turns: bytes) -> Path:
    """Write the turns to a new file, which takes the place of the one before, whatever that is; return its path.

    No link is followed beneath the records directory, and no `contextId` names a path. Raises `RecordsUnusable`.
    """
    folder = records.path / _FOLDER
    path = folder / f"{conversation_name(context_id)}.jsonl"
    try:
        directory = make_private(records.descriptor, _FOLDER, folder, fresh=False)
    except NotReached as error:
        raise RecordsUnusable(f"cannot make {error}") from error
    try:
        # As durable as the task it belongs to: after a crash of the machine there is nobody to read it.
        write_staged(directory, path.name, turns, durable=False)
    except OSError as error:
        raise RecordsUnusable(f"cannot make {path}: {reason_of(error)}") from error
    finally:
        os.close(directory)
    return path

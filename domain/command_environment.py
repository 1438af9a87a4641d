"""Which environment does the command of a manifest get? Only what it needs to be itself, and what it is allowed."""

from collections.abc import Mapping, Sequence

_ORDINARY = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ"))
_LOCALE = "LC_"

DETACHED = "MURMUR_DETACHED"
"""Tells a `mur run --detach` that it is the one which was started to stay."""

HANDED_ON = ("MURMUR_SPAWNER", "MURMUR_SPAWNER_LIFELINE", "MURMUR_FORMATION_ID")
"""What a launcher tells the session that it launches."""

WITHHELD = frozenset((
    "MURMUR_SPAWNER",
    "MURMUR_SPAWNER_LIFELINE",
    "MURMUR_FORMATION_LIFELINE",
    "MURMUR_FORMATION_CHANNEL",
    "MURMUR_FORMATION_PEERS",
    "MURMUR_SPAWN_GRANT",
    DETACHED,
    "MURMUR_CONVERSATION",
))  # fmt: skip
"""What a session is told by whoever launched it, or around it, and its command is not, whatever a manifest allows."""


def environment_for(
    manifest_allow: Sequence[str], own: Mapping[str, str], env_file: Mapping[str, str]
) -> dict[str, str]:
    """Choose the command's environment.

    `manifest_allow` is `capabilities.env.allow`, `own` this process's environment, `env_file` what the `.env` file
    says. An allowed name is taken from `own`, else from `env_file`; one that neither has is left out.
    """
    allowed = set(manifest_allow) - WITHHELD
    passed_on = {name: own[name] for name in own if name in allowed | _ORDINARY or name.startswith(_LOCALE)}
    return {name: env_file[name] for name in env_file if name in allowed} | passed_on

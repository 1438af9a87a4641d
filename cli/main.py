"""The `mur` command: which subcommands there are, and what every one of them shares.

A subcommand's module is imported when it is run, so that what one command costs to start does not depend on how
many there are.
"""

import gc

# Importing allocates much and frees nothing, so every collection meanwhile is time lost. A command that stays
# (`mur run`) turns it on again.
gc.disable()

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from murmur.cli.output import tolerate_any_text
from murmur.cli.version import VERSION

if TYPE_CHECKING:
    from typer._click.core import Command

COMMANDS = {
    "ps": "murmur.cli.ps",
    "run": "murmur.cli.run",
    "delegate": "murmur.cli.delegate",
    "install": "murmur.cli.install",
    "list": "murmur.cli.list",
    "uninstall": "murmur.cli.uninstall",
    "roost": "murmur.cli.roost",
    "stop": "murmur.cli.stop",
    "send": "murmur.cli.send",
    "watch": "murmur.cli.watch",
    "cancel": "murmur.cli.cancel",
    "control": "murmur.cli.control",
    "token": "murmur.cli.token",
    "prune": "murmur.cli.prune",
}


class LazyGroup(TyperGroup):
    """Finds subcommands by name in `COMMANDS` and imports the one that is asked for."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - the base class passes it
        """Return the names, in the order of `--help`."""
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> "Command | None":  # noqa: ARG002 - the base class passes it
        """Import the module of one subcommand; `None` for a name that is none."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = get_command(import_module(module).app)
        command.name = cmd_name
        return command


app = typer.Typer(cls=LazyGroup, add_completion=True, rich_markup_mode=None, no_args_is_help=True)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - an option's callback
    if wanted:
        typer.echo(f"mur {VERSION}")
        raise typer.Exit


@app.callback()
def mur(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """See, reach and end the AI agent sessions that are really running on this machine."""


def main() -> None:
    """Run the command line of this process."""
    tolerate_any_text()
    try:
        sys.exit(get_command(app).main(prog_name="mur", standalone_mode=True))
    finally:
        # Python's own end looks for cycles through all that was imported, several times over: a good part of what a
        # short command costs, for memory that is the kernel's a moment later.
        gc.freeze()

"""The `mur` command: one module a subcommand, and one composition root."""

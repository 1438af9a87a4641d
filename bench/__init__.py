"""How fast are the commands, beside an interpreter that does nothing? Run it with `python -m bench`."""

"""Lets the command be run as `python -m murmur.cli`."""

from murmur.cli.main import main

main()

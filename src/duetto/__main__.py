"""`python -m duetto` is the command `duetto`."""

from duetto.tools.cli import main

main()

"""`python -m duetto` is the command `duetto`."""

from duetto.cli import main

main()

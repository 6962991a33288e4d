"""Tools around runs: the command line, plots, reports, sweeps, searches, the Hub, export."""

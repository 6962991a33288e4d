"""Learning curves and tables from run folders."""

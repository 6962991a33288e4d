"""Pure formulas on arrays of either framework or of NumPy: no state, no framework, no environment."""

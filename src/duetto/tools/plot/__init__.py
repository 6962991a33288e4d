"""Learning curves and tables from run folders.

grouping          which runs form a curve, its name, and their metrics by step
curves            one metric over the seeds of a curve, with its confidence band; drawing with Matplotlib
table             results as a table, one number a row
"""

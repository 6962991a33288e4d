"""Learning curves and tables from run folders.

grouping          group runs into curves, name the curves, and read metrics by step
curves            one metric over the seeds of a curve, with its confidence band; drawing with Matplotlib
table             results as a CSV with one number in each row
"""

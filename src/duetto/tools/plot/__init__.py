"""Learning curves and tables from run folders.

metric_series     the metrics in a run's folder, by step
grouping          which runs form a curve, and its name
curves            one metric over the seeds of a curve, with its confidence band
figure            drawing with Matplotlib
table             results as a table, one number a row
"""

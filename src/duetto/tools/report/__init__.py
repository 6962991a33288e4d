"""Write a report on runs: one HTML file that needs no network.

    folders --> tools.plot.curves ---\\
    metric_docs.py: meanings of metrics --> report.py: charts, tables, videos --> templates/report.html --> a file
"""

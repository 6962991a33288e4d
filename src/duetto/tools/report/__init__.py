"""A report on runs: one HTML file that needs no network.

    folders --> tools.plot.curves --> charts.py: SVG images ------------------\\
           metric_docs.py: meanings of metrics --> report.py: tables, videos --> templates/report.html --> a file
"""

from duetto.tools.report.report import report

__all__ = ["report"]

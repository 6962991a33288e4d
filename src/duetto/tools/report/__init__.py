"""A report on runs: one HTML file that needs no network.

    folders, tables --> tools.plot.curves --> charts.py: plotly figures ------\\
           metric_docs.py: meanings of metrics --> sections.py: tables, videos --> templates/report.html --> a file
"""

from duetto.tools.report.report import report

__all__ = ["report"]

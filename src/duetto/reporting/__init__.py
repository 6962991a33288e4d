"""A report on runs: one self-contained page, which fetches nothing.

    folders, tables --> curves (display) --> charts.py: numbers to draw --\\
                                  meanings.py: what they mean --> sections.py: tables and words --> page.py --> a file
                                                                  films.py: videos --/

Everything that is shown of a folder may be a stranger's: `markup.py` makes it text, and `page.py` lets only its own two
scripts run.
"""

from duetto.reporting.writing import report

__all__ = ["report"]

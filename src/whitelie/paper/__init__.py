"""The paper reproduced: its experiments as data, their runs, figures, claims, and one report.

A *panel* is one set of axes. A *figure* is what the report shows under a name: a panel of the
paper's figures 1 to 5 such as 1a, a diagram, or a figure beyond the paper.
"""

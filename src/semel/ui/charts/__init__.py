"""The charts of the demo's report and of the console: the same shapes and colours for both.

`drawing.py` makes a chart as shapes, `charts.css` has the colours of their classes, in light and dark. The report
contains both in one file; the console sends the shapes as JSON, and its page makes the elements. This package must
never depend on the meaning of a figure.
"""

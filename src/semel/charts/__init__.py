"""The charts of the demo's report and of the console: one set of shapes, one set of colours, two ways to the screen.

`drawing.py` makes a chart as shapes, `charts.css` has the colours of their classes, in light and dark. The report holds
both in one file; the console sends the shapes as JSON and makes the elements in the browser. This room must never know
what a figure stands for.
"""

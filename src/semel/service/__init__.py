"""What the programs that run beside an application have in common: figures and probes over HTTP, their log, and their
end by a signal.

A program names the module that it needs: `semel serve` has no database, and must not import one.
"""

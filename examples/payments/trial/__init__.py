"""The trial of the service: real processes, clients that lose answers and repeat requests, and `kill -9` all the time.

It tests whether the service keeps its promises, and is no part of it: nothing in the service knows about the trial.
"""

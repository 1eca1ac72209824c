"""The trial of the service: real processes, clients that lose answers and repeat themselves, and `kill -9` throughout.

It is how one finds out whether a service keeps its promise, and no part of the service: nothing there knows of it.
"""

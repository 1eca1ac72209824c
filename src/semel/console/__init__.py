"""The console: pages in a browser that show a cluster and an application's tables as they are now.

It is a process of its own that speaks Kafka's protocol as a client, so it serves any cluster and cannot hold a broker
up. `door.py` decides who gets in, `server.py` speaks HTTP, `site.py` says what lies under which path, `askers.py` asks
the cluster in threads, and each of the other files answers one page's question. What the browser runs is in `assets/`.
It must never change anything unless it was started with `--allow-changes`, and then only by a POST that the door let
in.
"""

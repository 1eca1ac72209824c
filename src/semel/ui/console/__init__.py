"""The console: pages in a browser that show a cluster and an application's tables as they are now.

It runs in its own process as a client of Kafka's protocol, so it serves any cluster and cannot slow a broker's event
loop down. `door.py` decides who gets in, `server.py` speaks HTTP, `site.py` maps paths to answers, `askers.py` asks the
cluster in threads, and the other files answer the questions of the pages. `assets/` has the files for the browser. It
must never change anything unless it was started with `--allow-changes`, and then only by a POST that the door accepts.
"""

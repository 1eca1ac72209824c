"""The bench room: semel beside its peers, same client, same run. It measures from outside, over the socket and
through /proc, and must never reach into a broker's insides (the one exception is `bench.memory`, which says so)."""

"""Sockets, timers and wiring: what turns the rules, the codecs and the log into a broker."""

"""The broker: sockets and timers, and the code that connects them with the rules, the codecs and the log."""

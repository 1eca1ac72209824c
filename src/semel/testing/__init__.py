"""Tools to test durable programs, shipped because users of the log need them, too."""

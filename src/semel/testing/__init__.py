"""What tests of durable programs need: shipped, because users of the log want it too."""

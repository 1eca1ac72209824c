"""The rules, pure: no IO, no clock, no randomness, no logging. Time and chance come in as arguments."""

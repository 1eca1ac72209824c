"""The rules, as pure code: no IO, no clock, no randomness, no logging. Times and random values are arguments."""

"""The rules for listeners and logins, without a socket."""

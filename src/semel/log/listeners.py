"""The listeners of a broker, for what parses and shows them without a broker."""

from semel.log.security.listeners import Listener, ListenersRefused, SecurityProtocol, check_listeners

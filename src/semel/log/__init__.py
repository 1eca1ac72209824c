"""One broker, from its rules to its sockets. From outside of it only the modules directly in here may be imported."""

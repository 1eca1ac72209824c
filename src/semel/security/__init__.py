"""How clients connect and log in: listeners and logins as rules, without a socket."""

"""How an audit fails that can give no verdict: with one line that says what to change."""


class AuditFailed(Exception):
    """No verdict: something could not be read, or was named wrongly. The message is one line, for a person."""

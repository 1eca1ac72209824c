"""The error of an audit that can give no verdict: one line that says what to change."""


class AuditFailed(Exception):
    """No verdict: something could not be read, or was named wrongly. The message is one line, for a person."""

"""The error of an audit that can give no verdict: one line that says what to change."""


class AuditFailed(Exception):
    """No verdict: something could not be read, or was named wrongly. The message is one line, for a person."""


def failed(name: object, error: object) -> AuditFailed:
    """What a library says of this place, in one line."""
    return AuditFailed(f"{name}: {' '.join(str(error).split())}")

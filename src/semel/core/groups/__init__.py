"""Consumer groups: how far each has come, who is in it, and who reads what."""

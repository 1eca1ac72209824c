"""The data directory: the journal, the segments, the checkpoints, and `files`, through which all of them do IO."""

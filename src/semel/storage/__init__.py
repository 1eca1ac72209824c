"""Bytes <-> disk: the journal, the segments, the checkpoints, and the one seam through which all of them do IO."""

"""Consumer groups: their committed offsets, their members, and which member reads which partition."""

"""One module per broker that can stand in the table. A peer knows how to get itself, start and stop; it measures
nothing."""

"""The migrations: each makes the tables of semel's present version."""

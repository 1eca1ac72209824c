"""The settings of the project."""

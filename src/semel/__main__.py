"""`python -m semel` is `semel`."""

from semel.ui.cli import main

if __name__ == "__main__":
    main()

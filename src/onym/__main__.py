"""`python -m onym` is the command `onym`."""

from onym.cli import main

if __name__ == "__main__":
    main()

"""`python -m memfluence` is the command line."""

from memfluence.cli import main

if __name__ == "__main__":
    main()

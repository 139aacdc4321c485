"""`python -m evalcore`: the command line."""

from evalcore.cli.main import main

if __name__ == "__main__":
    main()

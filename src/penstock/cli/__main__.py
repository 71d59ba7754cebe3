"""`python -m penstock.cli` is `penstock`: how a supervisor starts its workers."""

from penstock.cli import main

if __name__ == "__main__":
    main()

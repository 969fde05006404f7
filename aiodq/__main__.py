"""`python -m aiodq` is the command `aiodq`, in the Python that runs it."""

from aiodq.cli import main

if __name__ == "__main__":
    main()

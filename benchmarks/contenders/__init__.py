"""The contenders: each a program of its own, in a virtual environment of its own, speaking `protocol`."""

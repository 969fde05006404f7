"""Measures aiodq beside its peers and a bare floor, in alternation in one run: `python -m benchmarks`.

Only the standard library is needed to import this package, since contenders run in environments of their own.
"""

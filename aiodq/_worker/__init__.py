"""The only room with loops: claims due jobs, runs their handlers, keeps their leases and settles them.

One role per file. A job passes through as values: `turns` lands a `Lease`, `executor` makes it a `Run` and
decides its settlement without writing it, `settler` collects settlements, `turns` writes them with its next
claim. Beside that stream, `keeper` renews leases from a thread of its own, and the one signal against the
stream is "your lease is lost". `runtime` composes them.
"""

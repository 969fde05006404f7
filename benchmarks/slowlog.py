"""How long each script took, from the server's own log of slow commands with its threshold at zero."""

from __future__ import annotations

from typing import cast

import redis

from aiodq._redis.scripts import load_scripts

MOST = 100_000


def begin(client: redis.Redis) -> None:
    client.config_set("slowlog-max-len", MOST)
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()


def end(client: redis.Redis) -> dict[str, list[int]]:
    """µs of every call since `begin`, by the script's name; scripts that are not ours by their digest."""
    client.config_set("slowlog-log-slower-than", -1)
    names = {script.sha: name for name, script in load_scripts().items()}
    found: dict[str, list[int]] = {}
    for entry in cast("list[list[object]]", client.slowlog_get(MOST)):
        row = cast("dict[str, object]", entry)
        words = cast("bytes", row["command"]).split(b" ", 2)
        if words[0].upper() == b"EVALSHA":
            sha = words[1].decode()
            found.setdefault(names.get(sha, sha), []).append(int(cast("int", row["duration"])))
    client.slowlog_reset()
    return found

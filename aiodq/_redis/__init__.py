"""Everything that speaks to Redis: keys, scripts, connections, errors. The only room that imports the
client."""

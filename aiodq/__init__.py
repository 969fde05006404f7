"""An asyncio-native delay queue on Redis sorted sets: exact due times, leases, retries, dead letters."""

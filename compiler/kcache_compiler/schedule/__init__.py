"""Schedules as plain values: loop nests, groups of nests, tile sizes and tunable choices. No IR."""

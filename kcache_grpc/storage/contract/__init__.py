"""The storage contract: what every store promises, by subject."""

"""Tasks of the event loop: shared by equal requests, or beside all requests."""

"""Tasks of the event loop: shared by equal requests, or in the background."""

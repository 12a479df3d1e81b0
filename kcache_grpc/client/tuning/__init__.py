"""Schedule search on this machine, and timings that the service keeps."""

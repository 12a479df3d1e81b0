"""The jobs of a worker process. Only the child process imports these modules."""

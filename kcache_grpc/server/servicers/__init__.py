"""gRPC servicers: they translate messages to values and back."""

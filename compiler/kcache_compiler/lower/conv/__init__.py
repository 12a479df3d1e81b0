"""Convolutions with few products per element, padding of all convolutions, and pooling."""

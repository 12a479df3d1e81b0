"""Convolutions with too little reuse for packed panels: depthwise ones, and groups of few channels."""

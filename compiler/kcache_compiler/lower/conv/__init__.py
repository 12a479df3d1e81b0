"""Convolutions that share too little for packed panels: depthwise ones, and groups of few channels."""

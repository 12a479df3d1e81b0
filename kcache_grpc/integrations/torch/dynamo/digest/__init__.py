"""The digest of a graph of Dynamo, and the texts that it is taken of."""

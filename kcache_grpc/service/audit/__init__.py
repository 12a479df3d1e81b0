"""The audit log: recording, sealing, queries, proofs and retention."""

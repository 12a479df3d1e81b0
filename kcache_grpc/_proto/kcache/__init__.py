"""Generated from protos/ by `make proto`; not edited by hand."""

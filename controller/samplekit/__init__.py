"""Samples made by hand, for tests: an encoder that knows the contract from the .proto file alone, and spool files."""

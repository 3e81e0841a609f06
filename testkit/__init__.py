"""Parts that tests and benches share: samples by hand, independent models, a broker, store fronts, edges with sshd.

The samples come from an encoder that knows the contract from the .proto file alone.
"""

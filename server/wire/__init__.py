"""Bytes of the protocol: the parser and the line builder."""

"""The part of a StreamStore that knows what lives; its Python side is in `_store`."""

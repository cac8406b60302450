"""Bytes on disk: commit log, message blocks, indexes. Knows nothing of networks."""

"""Consensus as a pure state machine: inputs in, Ready out."""

"""Configuration: the NATS grammar, YAML and flags in; frozen Options out."""

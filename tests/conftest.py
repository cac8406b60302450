"""Fixtures and rules for every test. Kinds of tests have a folder each; see ARCHITECTURE.md."""

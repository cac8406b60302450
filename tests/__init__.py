"""Tests, one folder for each kind."""

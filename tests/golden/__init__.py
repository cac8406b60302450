"""Data directories as today's and earlier versions wrote them, and what they hold."""

"""Sockets: the poller, listeners, TLS, HTTP."""

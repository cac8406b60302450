#!/bin/sh
# Takes arguments as the reference image does: flags, or `nats-server` (or `martlet`) and flags;
# anything else is a command to run instead. exec: the server is process 1 and gets the signals.
set -e
case "${1:-}" in
    "" | -*) exec martlet "$@" ;;
    nats-server | martlet) shift && exec martlet "$@" ;;
    *) exec "$@" ;;
esac

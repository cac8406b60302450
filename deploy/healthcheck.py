"""Exit code 0 while the server answers: /healthz when monitoring is on, else its INFO line.

MARTLET_HEALTH_HTTP_PORT (8222) and MARTLET_HEALTH_CLIENT_PORT (4222) name other ports.
"""

import http.client
import os
import socket
import sys

TIMEOUT_S = 2.0


def monitoring_answers(port: int) -> str:
    """Empty when healthy; raises ConnectionRefusedError when nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return "" if response.status == 200 else response.read().decode(errors="replace")
    finally:
        connection.close()


def client_port_answers(port: int) -> str:
    """Empty when the server greets."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        greeting = connection.recv(5)
        return "" if greeting == b"INFO " else f"unexpected greeting {greeting!r}"


def main() -> int:
    try:
        try:
            problem = monitoring_answers(int(os.environ.get("MARTLET_HEALTH_HTTP_PORT", "8222")))
        except ConnectionRefusedError:
            problem = client_port_answers(int(os.environ.get("MARTLET_HEALTH_CLIENT_PORT", "4222")))
    except OSError as error:
        problem = str(error)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())

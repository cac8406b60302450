"""Martlet and the genuine nats-server under the same loads; `python -m bench --help`.

`loadgen/` is the generator, in C. `programs` starts a server, `loads` runs the generator on it,
`rows` is the table of what is measured and its goals, `compare` takes the best of several
alternating rounds, `report` prints and keeps the lines, `profile` looks inside one row.
"""

"""Measurements of the server, most of them beside a real mariadbd: `python -m benchmarks`.

    __main__.py   the command line
    registry.py   what a benchmark is, and which there are
    suite/        one file per benchmark; a new file is all that a new benchmark needs
    drain.py      clients that only receive, in a process of their own
    history.py    a history of small row transactions in a real mariadbd
    servers.py    starting what is measured, and what it costs: processor time, memory

Servers are started by the test kit (`tests.kit`): one place knows how to. `docs/performance.md` has
the numbers and what bounds them.
"""

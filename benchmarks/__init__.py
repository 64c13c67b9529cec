"""Measurements of the server, most of them beside a real mariadbd: `python -m benchmarks`.

    __main__.py   the command line
    registry.py   what a benchmark is, and which there are
    suite/        one file per benchmark; a new file is all that a new benchmark needs
    child.py      programs of this package in processes of their own
    machine.py    what the numbers depend on: processor, disk
    servers.py    starting what is measured, and what it costs: processor time, memory
    history.py    a history of small row transactions in a real mariadbd
    drain.py      clients that only receive, in a process of their own
    masters.py    servers that take commits by SQL, ours and mariadbd with BLACKHOLE tables
    sql_client.py     ready-made statements and their answers
    committers.py     clients that commit as fast as they are answered (closed loop)
    arrivals.py       clients that commit at a fixed rate, whatever the answers do (open loop)
    big_writer.py     a client that writes one large transaction
    commit_cost.py    what commits cost a server
    store_process.py  the store by itself: commits, a full redo log, opening
    sparse_store.py   a valid store of any size
    strace.py         syncs of a process, counted from outside

Servers are started by the test kit (`tests.kit`): one place knows how to. `docs/performance.md` has
the numbers and what bounds them.
"""

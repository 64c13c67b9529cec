"""Store, disk and replicas under a virtual clock, in one thread; one integer makes all of it happen again.

    python -m tests.storage.simulation SEED [--events N]      one seed, told step by step
    pytest tests/storage/simulation -s                        as many seeds as fit

See `world.py` for what happens and what must hold.
"""

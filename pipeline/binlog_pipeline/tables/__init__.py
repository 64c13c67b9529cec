"""Tables as they are, or were: base and changes folded, kept as Parquet or Delta.

effects.py    what changes do, key by key         fold.py       a table and effects: the new table
manifest.py   what a target on disk consists of   buckets.py    the Parquet target
delta.py      the Delta target                    landing.py    changes as they came, as Parquet
"""

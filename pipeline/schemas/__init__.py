"""What is known of the tables in a log: their columns, which of two layouts is newer, what a statement does to them.

columns.py       a table map as named columns with types that Spark has too
search.py        the newest table map of a table in a source
conversion.py    rows of one layout as rows of another
"""

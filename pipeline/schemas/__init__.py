"""What is known of the tables in a log: their columns, which of two layouts is newer, what a statement does to them.

columns.py              a table map as named columns with types that Spark has too
search.py               the newest table map of a table in a source
conversion.py           rows of one layout as rows of another; evolution.py decides whether that is wanted
seed.py, sql_types.py   what the log does not say, from a file; seed_writing.py makes it
statements.py           names in the text of statements, by sql_tokens.py; logged_statements.py finds them in groups
subscription.py         which tables are wanted, and what concerns them
"""

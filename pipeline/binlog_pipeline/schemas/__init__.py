"""The tables of a log: their columns, which of two layouts is newer, the effects of statements on them.

columns.py              a table map as named columns with types that Spark has too
search.py               the newest table map of a table in a source
conversion.py           rows of one layout as rows of another; evolution.py decides whether that is wanted
seed.py, sql_types.py   what the log does not say, from a file; seed_writing.py makes it of a server
ddl_history.py          what statements make of tables, for such a file. ddl_columns.py, ddl_types.py, ddl_options.py
                        and ddl_alter.py read them; ddl_tables.py has layouts, ddl_catalog.py the tables of a moment
statements.py           which tables a statement is about; logged_statements.py finds statements in groups
subscription.py         which tables are wanted, and what concerns them
"""

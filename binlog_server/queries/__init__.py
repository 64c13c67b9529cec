"""SELECT over little tables: parsed by sqlglot, typed and answered here, with MariaDB's values and columns.

Nothing here knows the server: tables, variables and the clock come in from outside (`sql.inquiries`).
"""

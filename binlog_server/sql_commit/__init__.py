"""Statements that are committed as groups: `sql.statement_kind` tells their kind."""

"""The tables of a log: their columns, which of two layouts is newer, the effects of statements on them."""

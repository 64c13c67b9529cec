"""docs/rights.md: what each statement needs here, tried out, and what it needs in MariaDB, asked there."""

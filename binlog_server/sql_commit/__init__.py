"""SQL text that becomes groups: `statement_kind` says what it is, `settings` what it means, `committer` commits it."""

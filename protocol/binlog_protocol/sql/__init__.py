"""SQL text: `tokens` takes it apart, `token_reader` goes through the tokens, `plain` writes it without comments."""

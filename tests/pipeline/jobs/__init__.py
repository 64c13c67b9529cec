"""Programs as users write them, run in processes of their own by the tests."""

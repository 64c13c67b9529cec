"""Work on sources: cut into slices, done side by side by processes of this machine or by Spark, put together again."""

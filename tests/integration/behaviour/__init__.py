"""What real replicas, and our relay, do when their master misbehaves: docs/replica-behaviour.md."""

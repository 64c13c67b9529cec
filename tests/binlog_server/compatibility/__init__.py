"""The handshake lab: what real clients said to real masters, said to our server. docs/compatibility.md is made of it.

`python -m tests.binlog_server.compatibility` writes the page.

| file | what |
|---|---|
| `recordings.py` | recorded conversations, one per connection: requests, the master's answers, its stream |
| `scripts.py` | conversations of clients that are known from their source only: of those that stream |
| `fleet.py` | the same of what watches, steers and reads servers |
| `answers.py` | answers decoded; where ours differ from a master's on purpose, and why |
| `peer.py` | the client: says recorded bytes, one at a time, to a session without a socket |
| `stream.py` | what a replica makes of a stream: groups, heartbeats, how it ends |
| `replay.py`, `perform.py` | one recording, one script against our server: their `outcome.py` |
| `live.py` | tests with real servers and clients that are marked `proves`, found without running them |
| `features.py`, `results.py`, `page.py` | what the page tells about; all conversations held; its text |
"""

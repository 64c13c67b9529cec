"""The server: sockets, tasks, policy, SQL, command line. No byte layouts, no file formats."""

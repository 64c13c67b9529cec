"""What the commands of both programs say to a person on a terminal, and to a program behind a pipe."""

"""What clients send: the connection, and one small function for each command."""

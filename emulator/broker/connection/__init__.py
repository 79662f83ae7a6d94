"""The connections of clients, and the handlers of their commands."""

"""Authentication of clients: the providers of credentials, and one gate for each interface of a region."""

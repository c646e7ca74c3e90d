"""The embedded server, its clients and its benchmark."""

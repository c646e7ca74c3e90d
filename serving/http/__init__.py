"""The HTTP front end. Handlers only convert."""

"""The migrator's child: builds, captures and packages the user's model. Only ever imported in a subprocess."""
